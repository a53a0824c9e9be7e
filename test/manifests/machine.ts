import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { relayFile } from "@kpng/laboratory/relay.ts";
import { Child } from "../cluster/child.ts";
import { until } from "../cluster/until.ts";

/** Addresses of docs/install.md: the API server, and the nodes cp-1, cp-2 and n1. */
const apiAddress = "10.0.0.10";
const addresses = [apiAddress, "10.0.0.11", "10.0.0.12", "10.0.0.21"];

/**
 * A network namespace in which the containers of a test run, as on a node: with the addresses of the installation
 * guide, and with the API server of the test at 10.0.0.10:6443, but without any Service. Needs root.
 */
export class Machine {
  readonly name: string;
  readonly #forwarders: readonly Child[];

  private constructor(name: string, forwarders: readonly Child[]) {
    this.name = name;
    this.#forwarders = forwarders;
  }

  /** `folder` is for a socket and a log; `apiPort` is the port of the API server on the host's loopback address. */
  static async open(folder: string, apiPort: number): Promise<Machine> {
    const name = `kpng-manifests-${process.pid}`;
    ip("netns", "add", name);
    ip("-n", name, "link", "set", "lo", "up");
    for (const address of addresses) ip("-n", name, "addr", "add", `${address}/32`, "dev", "lo");
    // Unix sockets have no network namespace, so connections go through one: from the namespace to the host.
    const path = join(folder, "api.sock");
    const inside = ["ip", "netns", "exec", name];
    const forwarders = [
      [process.execPath, relayFile(), path, String(apiPort)],
      [...inside, process.execPath, relayFile(), `${apiAddress}:6443`, path],
    ].map((command) => new Child("forwarder", command, `${path}.log`));
    for (const forwarder of forwarders) forwarder.start();
    const machine = new Machine(name, forwarders);
    await until(
      "the API server is reachable in the namespace",
      () => machine.get(apiAddress, 6443, "/") !== undefined,
      60_000,
    );
    return machine;
  }

  /** Returns the HTTP status of a path, 0 if the answer is not HTTP; undefined if nothing listens on the port. */
  get(host: string, port: number, path: string): number | undefined {
    const script = `exec 3<>"/dev/tcp/$1/$2"; printf 'GET %s HTTP/1.0\\r\\n\\r\\n' "$3" >&3; timeout 10 head -c 12 <&3`;
    const args = ["netns", "exec", this.name, "bash", "-c", script, "probe", host, String(port), path];
    try {
      const answer = execFileSync("ip", args, { encoding: "latin1", stdio: ["ignore", "pipe", "ignore"] });
      return Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0);
    } catch {
      return undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#forwarders.map((forwarder) => forwarder.kill()));
    ip("netns", "delete", this.name);
  }
}

function ip(...args: readonly string[]): void {
  execFileSync("ip", args, { stdio: "pipe" });
}
