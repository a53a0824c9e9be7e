import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { collect, type Finished, toolEnvironment } from "./run-command.ts";

/** A kind of world that a laboratory can be made in; the first that this machine allows is taken. */
interface Isolation {
  /** Options of unshare. */
  readonly make: readonly string[];
  /** Options of nsenter. */
  readonly enter: readonly string[];
}

const asRoot: Isolation = { make: ["--mount", "--pid", "--net"], enter: ["--mount", "--pid", "--net"] };
const asUser: Isolation = {
  make: ["--user", "--map-root-user", ...asRoot.make],
  enter: ["--user", "--preserve-credentials", ...asRoot.enter],
};

/** Why no laboratory can be made here, in the tools' own words. */
export class NoLaboratory extends Error {}

/**
 * A set of named network namespaces that belong to this process and vanish with it.
 *
 * All of them live inside one world with process, mount and network namespaces of its own, and a user namespace where
 * the caller is not root: nothing here can reach the network of the machine. Process 1 of that world reads a pipe from
 * us: when the pipe ends, by `close` or because this process was killed, the kernel kills whatever runs in the world,
 * and with the last process the namespaces and their rules are gone.
 *
 * The file system is the machine's own, so a unix socket in a temporary folder is reached from every namespace.
 */
export class Laboratory {
  /** A folder for the files of those who use the laboratory; removed by `close`. */
  readonly folder: string;
  readonly #holder: ChildProcess;
  readonly #enter: readonly string[];

  private constructor(folder: string, holder: ChildProcess, enter: readonly string[]) {
    this.folder = folder;
    this.#holder = holder;
    this.#enter = enter;
  }

  /** Errors: NoLaboratory, with a reason for each way that was tried; nothing is left behind. */
  static async open(): Promise<Laboratory> {
    const folder = await mkdtemp(join(tmpdir(), "kpng-demo-"));
    const reasons: string[] = [];
    for (const isolation of process.getuid?.() === 0 ? [asRoot, asUser] : [asUser]) {
      const held = await hold(isolation);
      if (held.kind === "held") {
        return new Laboratory(folder, held.holder, ["--target", String(held.processId), ...isolation.enter]);
      }
      reasons.push(`unshare ${isolation.make.join(" ")}: ${held.reason}`);
    }
    await rm(folder, { recursive: true, force: true });
    throw new NoLaboratory(reasons.join("; "));
  }

  /** Makes a network namespace; its name is a plain word. */
  async add(name: string): Promise<void> {
    // A mount keeps the namespace; it is seen only inside the laboratory. /run/netns may not be ours to write.
    const path = this.path(name);
    const script = `: >"$0" && mount --bind /proc/self/ns/net "$0" && ip link set lo up`;
    await this.#run(["unshare", "--net", "sh", "-c", script, path]);
  }

  /** Path of a namespace inside the laboratory, as `ip link set … netns` and `nsenter --net=` take it. */
  path(name: string): string {
    return join(this.folder, `${name}.net`);
  }

  /** Runs a command to its end in a namespace. Errors: the command's own, with its words; see `collect`. */
  async run(name: string, command: readonly string[], input?: string): Promise<string> {
    return this.#run([...this.#inside(name), ...command], input);
  }

  /** Runs a command to its end in a namespace and says how it ended. */
  async finish(name: string, command: readonly string[], input?: string): Promise<Finished> {
    return collect(["nsenter", ...this.#enter, "--", ...this.#inside(name), ...command], input);
  }

  /** Starts a command in a namespace. It ends at the latest with the laboratory. */
  start(name: string, command: readonly string[], environment: Readonly<Record<string, string>> = {}): ChildProcess {
    return spawn("nsenter", [...this.#enter, "--", ...this.#inside(name), ...command], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...toolEnvironment(), ...environment },
      // Ctrl-C in a terminal goes to the whole foreground group; what is in the laboratory is ended by us, in order.
      detached: true,
    });
  }

  /** Ends everything in the laboratory and removes its folder. May be called twice. */
  async close(): Promise<void> {
    const holder = this.#holder;
    if (holder.exitCode === null && holder.signalCode === null) {
      const gone = new Promise((resolve) => holder.once("exit", resolve));
      holder.stdin?.end();
      await gone;
    }
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  /** setpriv: nsenter stays as the command's parent and passes no signals on; so the command ends when nsenter does. */
  #inside(name: string): readonly string[] {
    return ["nsenter", `--net=${this.path(name)}`, "--", "setpriv", "--pdeathsig", "TERM", "--"];
  }

  async #run(command: readonly string[], input?: string): Promise<string> {
    const finished = await collect(["nsenter", ...this.#enter, "--", ...command], input);
    if (finished.exitCode === 0) return finished.stdout;
    throw new Error(`${command.join(" ")}: exit ${finished.exitCode}: ${finished.stderr.trim()}`);
  }
}

type Held =
  | { readonly kind: "held"; readonly holder: ChildProcess; readonly processId: number }
  | { readonly kind: "refused"; readonly reason: string };

/** Starts process 1 of a world. It tells the number that it has outside: the world keeps the machine's /proc. */
async function hold(isolation: Isolation): Promise<Held> {
  const options = [...isolation.make, "--fork", "--kill-child", "--propagation", "private"];
  const script = "read -r number rest </proc/self/stat && echo $number && exec cat >/dev/null";
  const holder = spawn("unshare", [...options, "sh", "-c", script], {
    stdio: ["pipe", "pipe", "pipe"],
    env: toolEnvironment(),
    detached: true,
  });
  let stderr = "";
  holder.stderr.on("data", (data) => {
    stderr += String(data);
  });
  // A holder that is gone already cannot be told that it may go.
  holder.stdin.on("error", () => undefined);
  return new Promise((resolve) => {
    holder.once("error", (error) => resolve({ kind: "refused", reason: error.message }));
    holder.once("close", (code) => resolve({ kind: "refused", reason: stderr.trim() || `exit ${code}` }));
    holder.stdout.once("data", (data) => resolve({ kind: "held", holder, processId: Number(data) }));
  });
}
