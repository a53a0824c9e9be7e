import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";

/** Options of a guest. */
export interface GuestOptions {
  /** A folder that guest and machine share; everything else is read-only in the guest or ends with it. */
  readonly folder: string;
  /** The command and its arguments. */
  readonly command: readonly string[];
  /** The command in QEMU, where programs take ten times as long. Default: `command`. */
  readonly emulatedCommand?: readonly string[] | undefined;
  readonly environment?: Readonly<Record<string, string>> | undefined;
  /** Memory of the guest. Default 1024. */
  readonly memoryMiB?: number | undefined;
  readonly timeoutMs: number;
  /** A network that the guest is connected to. Default: none. */
  readonly network?: GuestNetwork | undefined;
}

/** A TAP device in another network namespace, which becomes `vec0` of user-mode Linux. QEMU has none. */
export interface GuestNetwork {
  readonly tap: string;
  /** Starts a command in that namespace. */
  readonly start: (command: readonly string[], environment: Readonly<Record<string, string>>) => ChildProcess;
}

/** How a run in a guest ended. */
export type GuestEnd = MachineEnd & {
  /** True in QEMU. */
  readonly isEmulated: boolean;
};

/** How a run of `bootMachine` ended. */
export type MachineEnd =
  | { readonly kind: "exited"; readonly exitCode: number; readonly output: string }
  /** The guest's kernel did not start on this machine; `reason` has its last words. */
  | { readonly kind: "not-booted"; readonly reason: string }
  | { readonly kind: "timeout"; readonly output: string };

/** A program that is a machine for a guest. */
interface Machine {
  /** *Shape:* `user-mode Linux`. */
  readonly name: string;
  readonly command: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/**
 * Runs a machine until it powers off. Its process 1 executes the file `init` of the shared folder, whose text
 * `initScript` makes. Both kinds of guests use it.
 */
export async function bootMachine(machine: Machine, options: GuestOptions): Promise<MachineEnd> {
  const { folder, timeoutMs, network } = options;
  const child = (network?.start ?? start)(machine.command, machine.environment ?? {});
  child.stdin?.end();
  let console = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => {
      console = (console + text).slice(-20_000);
    });
  }
  // Its processes share its process group; user-mode Linux does not end them all when it panics.
  const kill = (): void => {
    try {
      process.kill(-(child.pid ?? 0), "SIGKILL");
    } catch {
      // All have ended.
    }
  };
  let isOver = false;
  const timer = setTimeout(() => {
    isOver = true;
    kill();
  }, timeoutMs);
  process.once("exit", kill);
  await new Promise((resolve) => child.once("close", resolve));
  kill();
  clearTimeout(timer);
  process.removeListener("exit", kill);
  const output = readIfThere(join(folder, "out.txt"));
  const status = readIfThere(join(folder, "status")).trim();
  if (status !== "") return { kind: "exited", exitCode: Number(status), output };
  if (existsSync(join(folder, "booted"))) {
    return isOver ? { kind: "timeout", output } : { kind: "exited", exitCode: -1, output: `${output}\n${console}` };
  }
  const words = console.trim().split("\n").slice(-6).join(" | ");
  return { kind: "not-booted", reason: `${machine.name} does not boot on this machine: ${words}` };
}

function start(
  [program = "", ...args]: readonly string[],
  environment: Readonly<Record<string, string>>,
): ChildProcess {
  return spawn(program, args, { env: { ...process.env, ...environment }, detached: true });
}

/**
 * Writes the file `init`: mounts, then `prepare`, then the command with its output in `out.txt` and its exit status in
 * `status`, then power off. The file `booted` says that it began.
 */
export async function writeInit(options: GuestOptions, prepare: string): Promise<string> {
  const { folder, command, environment = {} } = options;
  const variables = Object.entries({ HOME: "/root", ...environment }).map(
    ([name, value]) => `export ${name}=${quote(value)}`,
  );
  const path = join(folder, "init");
  const text = `#!/bin/bash
export PATH=${quote(join(process.execPath, ".."))}:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys
${prepare}
: > ${quote(join(folder, "booted"))}
: > /run/xtables.lock
ip link set lo up
# kube-apiserver makes a label of it.
echo guest > /proc/sys/kernel/hostname
cd ${quote(process.cwd())}
${variables.join("\n")}
${command.map(quote).join(" ")} < /dev/null > ${quote(join(folder, "out.txt"))} 2>&1
echo $? > ${quote(join(folder, "status"))}
sync; echo o > /proc/sysrq-trigger; sleep 60
`;
  await writeFile(path, text, { mode: 0o755 });
  return path;
}

/** Returns a word of a shell command. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function readIfThere(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}
