import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";

const script =
  'require("net").createServer().listen({port:0,host:"127.0.0.1",backlog:1},function(){console.log(this.address().port)})';

/**
 * An endpoint of a test that answers no SYN: a process that is stopped accepts nothing, and its queue is full.
 */
export class SilentEndpoint implements AsyncDisposable {
  readonly at: EndpointAddress;
  readonly #process: ChildProcess;
  readonly #fillers: Socket[] = [];

  private constructor(child: ChildProcess, port: number) {
    this.#process = child;
    this.at = { address: "127.0.0.1", port };
  }

  static async open(): Promise<SilentEndpoint> {
    const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await once(child.stdout, "data");
    const silent = new SilentEndpoint(child, Number(String(line)));
    child.kill("SIGSTOP");
    while (await silent.#isAnswered());
    return silent;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#fillers) socket.destroy();
    this.#process.kill("SIGKILL");
  }

  #isAnswered(): Promise<boolean> {
    const socket = connect(this.at.port, this.at.address);
    this.#fillers.push(socket);
    socket.on("error", () => undefined);
    return Promise.race([once(socket, "connect").then(() => true), sleep(500).then(() => false)]);
  }
}
