import { mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { findBinaries } from "../cluster/binaries.ts";
import { until } from "../cluster/until.ts";

/** The result of a command: "served" for one that does not end by itself. */
export interface Ended {
  readonly exitCode: number | "served";
  readonly output: string;
}

/** A command that serves or follows until it is interrupted. */
export interface Running {
  /** Interrupts it. It must then end by itself. */
  end(): Promise<Ended>;
}

const endless = /\bto-api\b|^kpng record\b|^kpng replay .* to-local|^kpng-iptables .*--api (https|unix)|backend\.py\b/;

/** True for a command that serves or follows until it is interrupted. */
export function isEndless(command: string): boolean {
  return endless.test(command);
}

// Not in a hook: the first compilation takes minutes, and has no limit.
const binaries = await findBinaries(["grpcurl"]);

/**
 * A machine of its own for the commands of documents: a network namespace, where the default ports are free and the
 * kernel's rules are ours, with a folder that looks like a clone, and an empty /run. `run-blocks.nightly.test.ts` opens one for
 * each state of the cluster that documents talk about.
 */
export class Machine {
  readonly #laboratory: Laboratory;
  /** Folder in which commands are typed. Python packages in its folder `wheels` can be installed without network. */
  readonly folder: string;
  readonly #env: Readonly<Record<string, string>>;

  private constructor(laboratory: Laboratory, folder: string, env: Readonly<Record<string, string>>) {
    this.#laboratory = laboratory;
    this.folder = folder;
    this.#env = env;
  }

  /** Opens a machine whose folder has the content of `clone`. */
  static async open(clone = "."): Promise<Machine> {
    const folder = mkdtempSync(join(tmpdir(), "kpng-documents-"));
    for (const name of readdirSync(clone)) if (name !== "dist") symlinkSync(resolve(clone, name), join(folder, name));
    const grpcurl = binaries.kind === "found" ? [dirname(binaries.paths.grpcurl)] : [];
    const path = [resolve(clone, "node_modules/.bin"), ...grpcurl, process.env.PATH, "/usr/sbin", "/sbin"].join(
      delimiter,
    );
    const laboratory = await Laboratory.open();
    await laboratory.add("n1");
    await laboratory.run("n1", ["sh", "-c", "mount -t tmpfs tmpfs /run && mkdir /run/kpng"]);
    const python = { PIP_NO_INDEX: "1", PIP_FIND_LINKS: join(folder, "wheels"), PIP_DISABLE_PIP_VERSION_CHECK: "1" };
    return new Machine(laboratory, folder, {
      ...python,
      PATH: path,
      KPNG_STATE_FOLDER: join(folder, "state"),
      NODE_NAME: "n1",
    });
  }

  /** Starts a program that serves, and resolves when its output contains `text`. */
  async serve(command: string, text: string): Promise<void> {
    const { output } = this.#start(command);
    await until(`${command} says ${text}`, () => output().includes(text), 60_000, output);
  }

  /** Runs a command as typed. */
  async run(command: string): Promise<Ended> {
    const { output, ended } = this.#start(command);
    return { exitCode: (await ended) ?? -1, output: output() };
  }

  /** Starts a command that does not end, and resolves a second after it has printed something or written a file. */
  async follow(command: string): Promise<Running> {
    const { child, output, ended } = this.#start(command);
    const untilMs = Date.now() + 60_000;
    const isQuiet = (): boolean => output() === "" && !readdirSync(this.folder).some((name) => name.endsWith(".part"));
    while (isQuiet() && child.exitCode === null && Date.now() < untilMs) await sleep(100);
    await sleep(1_000);
    return {
      end: async () => {
        const isServing = child.exitCode === null;
        // The shell runs in a process group of its own.
        if (child.pid !== undefined && isServing) process.kill(-child.pid, "SIGINT");
        const hasEnded = await Promise.race([ended.then(() => true), sleep(30_000).then(() => false)]);
        return { exitCode: isServing && hasEnded ? "served" : (child.exitCode ?? -1), output: output() };
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async close(): Promise<void> {
    await this.#laboratory.close();
    rmSync(this.folder, { recursive: true });
  }

  #start(command: string) {
    const script = `cd ${this.folder}; set -euo pipefail\n${command}`;
    const child = this.#laboratory.start("n1", ["bash", "-c", script], this.#env);
    child.stdin?.end();
    let text = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (part: string) => (text += part));
    }
    const ended = new Promise<number | null>((done) => child.once("close", done));
    return { child, output: () => text, ended };
  }
}
