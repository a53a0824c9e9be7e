import type { ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { type IptablesVariant, useLegacyTools } from "../kernel/laboratory/legacy-tools.ts";
import { usageOf } from "./proc.ts";

/** Resources used by a service proxy and by the tools that it ran. */
export interface Usage {
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly peakRssBytes: number;
}

const metricsPort = 10_249;
const relayProgram = join(import.meta.dirname, "../peer/kube-proxy/relay-main.ts");

/** Service proxy in its own network namespace, observed through unix sockets. */
export class ProxyUnderTest {
  readonly #laboratory: Laboratory;
  readonly #child: ChildProcess;
  readonly #metricsSocket: string;
  /** Its rules are in nftables, and not in iptables-nft. */
  readonly isNftables: boolean;
  readonly #ends: (() => void)[] = [];
  #said = "";

  private constructor(laboratory: Laboratory, child: ChildProcess, metricsSocket: string, isNftables: boolean) {
    this.isNftables = isNftables;
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
   * Starts a proxy that serves metrics on 127.0.0.1:10249. `relays` are its connections to the machine outside: each
   * connects a port of its loopback address with a unix socket.
   */
  static async start(
    variant: IptablesVariant | "nftables",
    command: readonly string[],
    relays: readonly (readonly [port: number, socket: string])[],
  ): Promise<ProxyUnderTest> {
    const laboratory = await Laboratory.open();
    await laboratory.add("node");
    if (variant === "legacy") await useLegacyTools(laboratory, "node");
    const metricsSocket = join(laboratory.folder, "metrics.sock");
    const places = [...relays.flat(), metricsSocket, metricsPort].map(String);
    laboratory.start("node", [process.execPath, relayProgram, ...places]);
    return new ProxyUnderTest(laboratory, laboratory.start("node", command), metricsSocket, variant === "nftables");
  }

  /** Usage of the process and of its tools, running or finished; the memory is that of the process alone. */
  get usage(): Usage {
    const pid = this.#pid;
    const { cpuMs, rssBytes, peakRssBytes } = usageOf(pid);
    const running = childrenOf(pid).reduce((sum, child) => sum + usageOf(child).cpuMs, 0);
    return { cpuMs: cpuMs + waitedCpuMs(pid) + running, rssBytes, peakRssBytes };
  }

  /** Returns the sum of a metric's samples except IPv6; 0 if the metric or the endpoint does not exist yet. */
  async metric(name: string): Promise<number> {
    const [value = 0] = await this.metrics(name);
    return value;
  }

  /** Returns several metrics of one scrape. */
  async metrics(...names: readonly string[]): Promise<readonly number[]> {
    if (this.#child.exitCode !== null) throw new Error(`the proxy has exited: ${this.#said}`);
    const { body } = await this.get("/metrics");
    const lines = body.split("\n").filter((line) => !line.includes('ip_family="IPv6"'));
    return names.map((name) =>
      lines
        .filter((line) => /^[^{ ]+/.exec(line)?.[0] === name)
        .reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0),
    );
  }

  /** Waits until `isSo` returns true; returns false after `limitMs`. */
  async until(isSo: () => Promise<boolean>, limitMs: number, everyMs = 20): Promise<boolean> {
    const deadlineMs = performance.now() + limitMs;
    while (!(await isSo())) {
      if (performance.now() > deadlineMs) return false;
      await sleep(everyMs);
    }
    return true;
  }

  /** Waits for the first full sync; returns false if there was none within `limitMs`. */
  isInstalled(limitMs: number): Promise<boolean> {
    const syncs = "kubeproxy_sync_full_proxy_rules_duration_seconds_count";
    return this.until(async () => (await this.metric(syncs)) > 0, limitMs, 200);
  }

  /** Stops the proxy, so that it takes no CPU time. Its rules stay. */
  suspend(): void {
    process.kill(this.#pid, "SIGSTOP");
  }

  /** Returns the installed IPv4 rules. */
  async rules(): Promise<string> {
    return this.#laboratory.run("node", this.isNftables ? ["nft", "list", "ruleset", "ip"] : ["iptables-save"]);
  }

  /** Runs a command in a namespace, and returns its output. Errors: exit status other than 0. */
  run(command: readonly string[], name = "node"): Promise<string> {
    return this.#laboratory.run(name, command);
  }

  /** Calls `end` when the proxy is closed. */
  onClose(end: () => void): void {
    this.#ends.push(end);
  }

  async close(): Promise<void> {
    // nsenter stops with a suspended proxy, and would not notice that it is gone.
    this.#child.kill("SIGCONT");
    await this.#laboratory.close();
    for (const end of this.#ends) end();
  }

  /** Process ID of the proxy, a child of the command that enters the namespace. */
  get #pid(): number {
    const [pid] = childrenOf(this.#child.pid ?? 0);
    if (pid === undefined) throw new Error(`the proxy has exited: ${this.#said}`);
    return pid;
  }

  /** Returns the HTTP response of the proxy; status 0 if there is none within 5 s. */
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
      call.on("timeout", () => call.destroy(new Error("no response within 5 s")));
      call.on("error", ({ message }) => resolve({ status: 0, body: message }));
      call.end();
    });
  }
}

/** Returns the children of all threads, because any thread may start a tool. */
function childrenOf(pid: number): readonly number[] {
  const files = readdirSync(`/proc/${pid}/task`).map((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, "utf8"),
  );
  return files.flatMap((text) => text.split(" ").filter(Boolean)).map(Number);
}

/** Returns the CPU time of the children that the process has waited for. Source: proc(5), cutime and cstime. */
function waitedCpuMs(pid: number): number {
  // The process name in parentheses may contain spaces; the fields follow it.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
  return (Number(fields[13]) + Number(fields[14])) * 10;
}
