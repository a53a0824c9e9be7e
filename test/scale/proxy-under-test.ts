import type { ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { type IptablesVariant, useLegacyTools } from "../kernel/laboratory/legacy-tools.ts";
import { usageOf } from "./proc.ts";

/** What a service proxy's process and the tools that it ran have used. */
export interface Usage {
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly peakRssBytes: number;
}

const metricsPort = 10_249;
const relayProgram = join(import.meta.dirname, "../peer/kube-proxy/relay-main.ts");

/** A service proxy in a network namespace of its own, watched from outside through unix sockets. */
export class ProxyUnderTest {
  readonly #laboratory: Laboratory;
  readonly #child: ChildProcess;
  readonly #metricsSocket: string;
  #said = "";

  private constructor(laboratory: Laboratory, child: ChildProcess, metricsSocket: string) {
    this.#laboratory = laboratory;
    this.#child = child;
    this.#metricsSocket = metricsSocket;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (data) => {
        this.#said = (this.#said + String(data)).slice(-3_000);
      });
    }
  }

  /**
   * Starts it with its metrics on 127.0.0.1:10249. `relays` are what it needs of the machine: a port of its loopback
   * address, and the unix socket that leads on.
   */
  static async start(
    variant: IptablesVariant,
    command: readonly string[],
    relays: readonly (readonly [port: number, socket: string])[],
  ): Promise<ProxyUnderTest> {
    const laboratory = await Laboratory.open();
    await laboratory.add("node");
    if (variant === "legacy") await useLegacyTools(laboratory, "node");
    const metricsSocket = join(laboratory.folder, "metrics.sock");
    const places = [...relays.flat(), metricsSocket, metricsPort].map(String);
    laboratory.start("node", [process.execPath, relayProgram, ...places]);
    return new ProxyUnderTest(laboratory, laboratory.start("node", command), metricsSocket);
  }

  /** Of the process and of the tools that it ran or is running; memory of the process alone. */
  get usage(): Usage {
    const pid = this.#pid;
    const { cpuMs, rssBytes, peakRssBytes } = usageOf(pid);
    const running = childrenOf(pid).reduce((sum, child) => sum + usageOf(child).cpuMs, 0);
    return { cpuMs: cpuMs + waitedCpuMs(pid) + running, rssBytes, peakRssBytes };
  }

  /** Sum of a metric's samples, without those of IPv6; 0 before the process serves metrics, or if there is none. */
  async metric(name: string): Promise<number> {
    const [value = 0] = await this.metrics(name);
    return value;
  }

  /** Several of them, as they are at one moment. */
  async metrics(...names: readonly string[]): Promise<readonly number[]> {
    if (this.#child.exitCode !== null) throw new Error(`the proxy has ended: ${this.#said}`);
    const { body } = await this.get("/metrics");
    const lines = body.split("\n").filter((line) => !line.includes('ip_family="IPv6"'));
    return names.map((name) =>
      lines
        .filter((line) => /^[^{ ]+/.exec(line)?.[0] === name)
        .reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0),
    );
  }

  /** Waits until `isSo`; false if the time is over. */
  async until(isSo: () => Promise<boolean>, limitMs: number, everyMs = 20): Promise<boolean> {
    const deadlineMs = performance.now() + limitMs;
    while (!(await isSo())) {
      if (performance.now() > deadlineMs) return false;
      await sleep(everyMs);
    }
    return true;
  }

  /** Rules of IPv4 that stand. */
  async rules(): Promise<string> {
    return this.#laboratory.run("node", ["iptables-save"]);
  }

  close(): Promise<void> {
    return this.#laboratory.close();
  }

  /** The command that brings it into the namespace stays as its parent. */
  get #pid(): number {
    const [pid] = childrenOf(this.#child.pid ?? 0);
    if (pid === undefined) throw new Error(`the proxy has ended: ${this.#said}`);
    return pid;
  }

  /** What it answers over HTTP; status 0 if it does not, within 5 s. */
  get(path: string): Promise<{ readonly status: number; readonly body: string }> {
    return new Promise((resolve) => {
      const call = request({ socketPath: this.#metricsSocket, path, timeout: 5_000, agent: false }, (response) => {
        let body = "";
        response.setEncoding("utf8").on("data", (chunk: string) => {
          body += chunk;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
        response.on("error", ({ message }) => resolve({ status: 0, body: message }));
      });
      call.on("timeout", () => call.destroy(new Error("no answer in 5 s")));
      call.on("error", ({ message }) => resolve({ status: 0, body: message }));
      call.end();
    });
  }
}

/** Of all threads: a tool may be started by any. */
function childrenOf(pid: number): readonly number[] {
  const files = readdirSync(`/proc/${pid}/task`).map((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, "utf8"),
  );
  return files.flatMap((text) => text.split(" ").filter(Boolean)).map(Number);
}

/** Of all children that the process has waited for. Source: proc(5), cutime and cstime of /proc/PID/stat. */
function waitedCpuMs(pid: number): number {
  // The name in parentheses may hold anything: what is counted comes after it.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
  return (Number(fields[13]) + Number(fields[14])) * 10;
}
