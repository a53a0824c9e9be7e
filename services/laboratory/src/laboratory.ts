import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Thrown if this machine permits no laboratory. The message contains the errors from `unshare`. */
export class LaboratoryUnavailable extends Error {}

/**
 * A set of named network namespaces that belongs to this process and disappears with it. `npm run demo` and the kernel
 * tests send real packets in it.
 *
 * All namespaces live inside one outer set of process, mount and network namespaces, and inside a user namespace if the
 * caller is not root, so nothing in the laboratory can reach the machine's network. Process 1 of the outer process
 * namespace reads from a pipe that our process holds open. When the pipe ends, because of `close` or because our
 * process was killed, the kernel kills every process in the laboratory; the namespaces and their rules disappear with
 * the last process.
 *
 * The file system is the machine's own, so a unix socket in a temporary folder can be reached from every namespace.
 */
export class Laboratory implements AsyncDisposable {
  /** Folder for files of the laboratory's users; removed by `close`. */
  readonly folder: string;
  readonly #holder: ChildProcess;
  readonly #enter: readonly string[];

  private constructor(folder: string, holder: ChildProcess, enter: readonly string[]) {
    this.folder = folder;
    this.#holder = holder;
    this.#enter = enter;
  }

  /** Opens an empty laboratory. Errors: LaboratoryUnavailable; nothing is left behind. */
  static async open(): Promise<Laboratory> {
    const folder = await mkdtemp(join(tmpdir(), "kpng-demo-"));
    const reasons: string[] = [];
    for (const isolation of process.getuid?.() === 0 ? [asRoot, asUser] : [asUser]) {
      const started = await startHolder(isolation);
      if (started.kind === "started") {
        return new Laboratory(folder, started.holder, ["--target", String(started.processId), ...isolation.enter]);
      }
      reasons.push(`unshare ${isolation.make.join(" ")}: ${started.reason}`);
    }
    await rm(folder, { recursive: true, force: true });
    throw new LaboratoryUnavailable(reasons.join("; "));
  }

  /** Adds a network namespace. `name` consists of letters, digits and dashes. */
  async add(name: string): Promise<void> {
    // A mount keeps the namespace alive and is visible only inside the laboratory; /run/netns might not be writable.
    const path = this.path(name);
    const script = `: >"$0" && mount --bind /proc/self/ns/net "$0" && ip link set lo up`;
    await this.#run(["unshare", "--net", "sh", "-c", script, path]);
  }

  /** Path of a namespace inside the laboratory, for `ip link set … netns` and `nsenter --net=`. */
  path(name: string): string {
    return join(this.folder, `${name}.net`);
  }

  /**
   * Runs a command in a namespace and returns its standard output. Errors: throws if the exit status is not 0; the
   * message contains the command's stderr.
   */
  async run(name: string, command: readonly string[], input?: string): Promise<string> {
    return this.#run([...this.#inside(name), ...command], input);
  }

  /**
   * Runs a command in a namespace and returns its output and exit status, even if that is not 0. Default time limit:
   * one minute.
   */
  async tryRun(name: string, command: readonly string[], input?: string, timeoutMs?: number): Promise<CommandResult> {
    return runCommand(["nsenter", ...this.#enter, "--", ...this.#inside(name), ...command], input, timeoutMs);
  }

  /** Starts a command in a namespace. Closing the laboratory kills it. */
  start(name: string, command: readonly string[], environment: Readonly<Record<string, string>> = {}): ChildProcess {
    return spawn("nsenter", [...this.#enter, "--", ...this.#inside(name), ...command], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...toolEnvironment(), ...environment },
      // Ctrl-C reaches the whole foreground process group, but processes in the laboratory must end in the order that
      // we choose.
      detached: true,
    });
  }

  /**
   * Starts a command that prints a line when it is ready; resolves then. Errors: throws with its stderr if it ends before.
   */
  async startServer(name: string, command: readonly string[]): Promise<void> {
    const child = this.start(name, command);
    let stderr = "";
    child.stderr?.on("data", (data) => {
      stderr = `${stderr}${data}`.slice(-10_000);
    });
    const closed = once(child, "close").then(([code]) => {
      throw new Error(`${command[0]}: exit status ${code} before it was ready: ${stderr.trim()}`);
    });
    if (child.stdout !== null) await Promise.race([once(child.stdout, "data"), closed]);
  }

  /** Kills every process in the laboratory and removes its folder. A second call does nothing. */
  async close(): Promise<void> {
    const holder = this.#holder;
    if (holder.exitCode === null && holder.signalCode === null) {
      const gone = new Promise((resolve) => holder.once("exit", resolve));
      holder.stdin?.end();
      await gone;
    }
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Returns the prefix of a command that runs in a namespace. nsenter does not forward signals, so setpriv ends the
   * command when nsenter ends.
   */
  #inside(name: string): readonly string[] {
    return ["nsenter", `--net=${this.path(name)}`, "--", "setpriv", "--pdeathsig", "TERM", "--"];
  }

  async #run(command: readonly string[], input?: string): Promise<string> {
    const { exitCode, stdout, stderr } = await runCommand(["nsenter", ...this.#enter, "--", ...command], input);
    if (exitCode === 0) return stdout;
    throw new Error(`${command.join(" ")}: exit status ${exitCode}: ${stderr.trim()}`);
  }
}

/** A set of namespaces of which a laboratory can consist. The first set that this machine permits is used. */
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

type StartedHolder =
  | { readonly kind: "started"; readonly holder: ChildProcess; readonly processId: number }
  | { readonly kind: "refused"; readonly reason: string };

/**
 * Starts process 1 of a laboratory, which keeps it alive.
 *
 * It prints its process id outside the laboratory, which nsenter needs because the laboratory keeps the machine's
 * /proc.
 */
async function startHolder(isolation: Isolation): Promise<StartedHolder> {
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
  // Ending the pipe to a process that has already exited fails; this needs no handling.
  holder.stdin.on("error", () => undefined);
  return new Promise((resolve) => {
    holder.once("error", (error) => resolve({ kind: "refused", reason: error.message }));
    holder.once("close", (code) => resolve({ kind: "refused", reason: stderr.trim() || `exit status ${code}` }));
    holder.stdout.once("data", (data) => resolve({ kind: "started", holder, processId: Number(data) }));
  });
}

/** Output and exit status of a command. */
interface CommandResult {
  /** -1 if the command could not be started or a signal ended it. */
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Returns the environment for tools such as `ip` and `iptables-save`.
 *
 * PATH begins with the folder of this Node.js and ends with the sbin folders, which a user's PATH on Debian lacks.
 */
export function toolEnvironment(): NodeJS.ProcessEnv {
  const path = [dirname(process.execPath), process.env.PATH ?? "/usr/bin:/bin", "/usr/sbin", "/sbin"].join(":");
  return { ...process.env, PATH: path };
}

/**
 * Runs a command, kills it after `timeoutMs`, and returns how it ended. Never rejects.
 */
export async function runCommand(command: readonly string[], input = "", timeoutMs = 60_000): Promise<CommandResult> {
  const [program = "", ...options] = command;
  return new Promise((resolve) => {
    const child = spawn(program, options, { env: toolEnvironment(), detached: true, timeout: timeoutMs });
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name].setEncoding("utf8").on("data", (text: string) => {
        output[name] += text;
      });
    }
    child.once("error", (error) => resolve({ exitCode: -1, stdout: output.stdout, stderr: error.message }));
    child.once("close", (code) => resolve({ exitCode: code ?? -1, ...output }));
    // A command may end without reading its input.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input);
  });
}

/**
 * Waits until a program has created its unix socket.
 *
 * Errors: throws if the program ended, or if there is no socket within a minute.
 */
export async function waitForSocket(program: ChildProcess, path: string): Promise<void> {
  const deadlineMs = performance.now() + 60_000;
  while (!existsSync(path)) {
    const { exitCode, signalCode } = program;
    if (exitCode !== null) throw new Error(`exit status ${exitCode} before ${path} existed`);
    if (signalCode !== null) throw new Error(`${signalCode} before ${path} existed`);
    if (performance.now() > deadlineMs) throw new Error(`no socket ${path} within 60 s`);
    await sleep(5);
  }
}

/**
 * An open laboratory (network namespaces that exchange real packets), or the reason why this machine has none. Many
 * containers permit no namespaces, so the demo and the tests must do without one there.
 */
type OpenResult =
  | { readonly kind: "open"; readonly laboratory: Laboratory }
  | { readonly kind: "unavailable"; readonly reason: string };

/**
 * Opens a laboratory if this machine has the tools, permits namespaces and can load NAT rules for both families with the
 * tool that its user needs.
 */
export async function openLaboratory(rules: RuleTool = "iptables"): Promise<OpenResult> {
  if (process.platform !== "linux") return unavailable("network namespaces need Linux");
  const { packages, samples } = ruleTools[rules];
  const packageByTool: Readonly<Record<string, string>> = {
    unshare: "util-linux",
    nsenter: "util-linux",
    setpriv: "util-linux",
    ip: "iproute2",
    ...packages,
  };
  const test = 'for tool; do command -v "$tool" >&2 || echo "$tool"; done';
  const { stdout } = await runCommand(["sh", "-c", test, "sh", ...Object.keys(packageByTool)]);
  const missing = stdout.split("\n").filter(Boolean);
  if (missing.length > 0) {
    const names = new Set(missing.map((tool) => packageByTool[tool]));
    return unavailable(`not installed: ${missing.join(", ")} (Debian packages: ${[...names].join(" ")})`);
  }
  try {
    const laboratory = await Laboratory.open();
    const reason = await tryRules(laboratory, samples);
    if (reason === undefined) return { kind: "open", laboratory };
    await laboratory.close();
    return unavailable(reason);
  } catch (error) {
    if (!(error instanceof LaboratoryUnavailable)) throw error;
    return unavailable(`this user cannot create namespaces on this machine: ${error.message}`);
  }
}

function unavailable(reason: string): OpenResult {
  return { kind: "unavailable", reason };
}

type RuleTool = "iptables" | "nft";

/** NAT rules with every match and target that tests need. */
const iptablesSample = `*nat
-A PREROUTING -m comment --comment sample -m statistic --mode random --probability 0.5 -j DNAT --to-destination ADDRESS
-A POSTROUTING -j MASQUERADE
COMMIT
`;

const nftSample = `table inet sample {
  chain before { type nat hook prerouting priority -100; dnat ip to 192.0.2.1; dnat ip6 to 2001:db8::1; }
  chain after { type nat hook postrouting priority 100; masquerade; }
}
`;

/** By tool: the Debian packages of its programs, and NAT rules with the command that loads them. */
const ruleTools: Readonly<
  Record<RuleTool, { readonly packages: Readonly<Record<string, string>>; readonly samples: readonly Sample[] }>
> = {
  iptables: {
    packages: {
      "iptables-save": "iptables",
      "iptables-restore": "iptables",
      "ip6tables-save": "iptables",
      "ip6tables-restore": "iptables",
    },
    samples: [
      { command: ["iptables-restore"], rules: iptablesSample.replace("ADDRESS", "192.0.2.1") },
      { command: ["ip6tables-restore"], rules: iptablesSample.replace("ADDRESS", "2001:db8::1") },
    ],
  },
  nft: { packages: { nft: "nftables" }, samples: [{ command: ["nft", "-f", "-"], rules: nftSample }] },
};

interface Sample {
  readonly command: readonly string[];
  readonly rules: string;
}

/**
 * Returns why the kernel rejects NAT rules, or undefined if it accepts them. The only way to find out is to load some.
 */
async function tryRules(laboratory: Laboratory, samples: readonly Sample[]): Promise<string | undefined> {
  try {
    await laboratory.add("probe");
  } catch (error) {
    return `cannot create a network namespace: ${error instanceof Error ? error.message : String(error)}`;
  }
  for (const { command, rules } of samples) {
    const { exitCode, stderr } = await laboratory.tryRun("probe", command, rules);
    if (exitCode !== 0) return `the kernel rejects NAT rules: ${command[0]}: ${stderr.trim()}`;
  }
  return undefined;
}
