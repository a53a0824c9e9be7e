import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { isAlive } from "../../cluster/child.ts";
import { testCache } from "../../cluster/test-cache.ts";

/**
 * Program of the cluster that runs in a namespace of the laboratory and can be stopped and started again. Its output is
 * appended to a file. The laboratory kills it at the latest when it closes.
 *
 * Separate from `Child` in test/cluster, whose programs run beside the test and share its network.
 */
export class Daemon {
  readonly name: string;
  readonly #laboratory: Laboratory;
  readonly #namespace: string;
  readonly #command: readonly string[];
  readonly #logFile: string;
  #process: ChildProcess | undefined;

  constructor(options: {
    readonly name: string;
    readonly laboratory: Laboratory;
    readonly namespace: string;
    readonly command: readonly string[];
    readonly logFile: string;
  }) {
    this.name = options.name;
    this.#laboratory = options.laboratory;
    this.#namespace = options.namespace;
    this.#command = options.command;
    this.#logFile = options.logFile;
  }

  start(): void {
    if (this.isRunning) return;
    const script = 'exec "$@" >>"$0" 2>&1 </dev/null';
    const process = this.#laboratory.start(this.#namespace, ["sh", "-c", script, this.#logFile, ...this.#command]);
    // A program that cannot be started has no exit status; the check for readiness reports it.
    process.on("error", () => undefined);
    this.#process = process;
  }

  get isRunning(): boolean {
    return this.#process !== undefined && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Ends the program with SIGTERM. Resolves when nsenter has exited, which may be before the program has. */
  async stop(): Promise<void> {
    if (!this.isRunning || this.#process === undefined) return;
    const gone = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    await gone;
  }

  /** Returns the last lines of its output, for messages. */
  tail(lines = 15): string {
    if (!existsSync(this.#logFile)) return "";
    return readFileSync(this.#logFile, "utf8").trimEnd().split("\n").slice(-lines).join("\n");
  }
}

const folderPrefix = "run-";

/** Creates a folder for one cluster or guest next to the image store, and removes what killed processes have left. */
export function makeRunFolder(): string {
  const cache = testCache("e2e");
  mkdirSync(cache, { recursive: true });
  for (const name of readdirSync(cache)) {
    const pid = new RegExp(`^${folderPrefix}(\\d+)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    rmSync(join(cache, name), { recursive: true, force: true });
  }
  return mkdtempSync(join(cache, `${folderPrefix}${process.pid}-`));
}

/** Removes images and databases from a folder of `makeRunFolder`. */
export function removeAllButLogs(folder: string): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory() && ["containerd", "etcd", "images"].includes(entry.name)) {
      rmSync(join(entry.parentPath, entry.name), { recursive: true, force: true });
    }
  }
}
