import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statfsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/**
 * Kernel modules of a guest. All are loaded at the start, because the guest's kernel finds none by itself: they are not
 * in /lib/modules.
 */
const modules = [
  ...["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_sh", "ip_vs_mh", "dummy", "veth", "bridge", "br_netfilter"],
  ...["iptable_filter", "iptable_nat", "iptable_mangle", "ip6table_filter", "ip6table_nat", "ip6table_mangle"],
  ...["xt_set", "xt_conntrack", "xt_mark", "xt_comment", "xt_MASQUERADE", "xt_tcpudp", "ipt_REJECT", "ip6t_REJECT"],
  ...["ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportnet", "ip_set_hash_netnet", "ip_set_bitmap_port"],
  "nf_conntrack_netlink",
];

const program = "/usr/bin/linux.uml";
const modulesFolder = "/usr/lib/uml/modules";

/** Memory of a guest, in bytes. */
const memoryBytes = 1024 * 1024 * 1024;

/** How a run in a guest ended. */
export type GuestEnd =
  | { readonly kind: "exited"; readonly exitCode: number; readonly output: string }
  /** The guest's kernel did not start on this machine; `reason` has its last words. */
  | { readonly kind: "not-booted"; readonly reason: string }
  | { readonly kind: "timeout"; readonly output: string };

/** Returns what is not installed; undefined if a guest can be tried. */
export function whyNoGuest(): string | undefined {
  if (process.getuid?.() !== 0) return "a guest with IPVS needs root";
  const missing = [program, modulesFolder, "/usr/sbin/ipvsadm", "/usr/sbin/ipset", "/usr/sbin/modprobe"].filter(
    (path) => !existsSync(path),
  );
  if (missing.length === 0) return undefined;
  return `not found: ${missing.join(", ")} (Debian: apt-get install user-mode-linux kmod ipvsadm ipset)`;
}

/** Options of {@link runInGuest}. */
export interface GuestOptions {
  /** A folder that guest and machine share; everything else is read-only in the guest or ends with it. */
  readonly folder: string;
  /** The command and its arguments. */
  readonly command: readonly string[];
  readonly environment?: Readonly<Record<string, string>> | undefined;
  readonly timeoutMs: number;
}

/**
 * Boots user-mode Linux, a kernel that runs as a program, on a read-only view of this machine's files; runs a command
 * as root in it; and powers it off. Tests of IPVS use it, because the kernels of test machines often lack IPVS. See
 * docs/decisions/0049.
 *
 * The commands `iptables` are those of iptables-legacy there: the kernel's nf_tables has no NAT.
 */
export async function runInGuest(options: GuestOptions): Promise<GuestEnd> {
  const { folder, timeoutMs } = options;
  const init = join(folder, "init");
  await writeFile(init, initScript(options), { mode: 0o755 });
  const args = [
    ...[`mem=${memoryBytes / 1024 / 1024}M`, "rootfstype=hostfs", "rootflags=/", "ro", `init=${init}`],
    ...["con=null", "con0=fd:0,fd:1"],
  ];
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TMPDIR: memoryFolder(folder) },
    detached: true,
  });
  let console = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      console = (console + text).slice(-20_000);
    });
  }
  // Its processes share its process group; it does not end them all when it panics.
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
  await new Promise((resolve) => child.once("exit", resolve));
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
  return { kind: "not-booted", reason: `user-mode Linux does not boot on this machine: ${words}` };
}

/** Process 1 of the guest. */
function initScript({ folder, command, environment = {} }: GuestOptions): string {
  const [version = ""] = readdirSync(modulesFolder);
  // A clone in /tmp would be hidden by the guest's own file system there.
  const hiddenFolders = ["/run/", "/tmp/", "/dev/shm/"].some((at) => process.cwd().startsWith(at))
    ? [process.cwd()]
    : [];
  const variables = Object.entries({ HOME: "/root", ...environment }).map(
    ([name, value]) => `export ${name}=${quote(value)}`,
  );
  return `#!/bin/bash
export PATH=${quote(dirname(process.execPath))}:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys
for at in /run /tmp /dev/shm; do mount -t tmpfs tmpfs $at; done
for at in ${[folder, ...hiddenFolders].map(quote).join(" ")}; do mkdir -p "$at"; mount -t hostfs -o "$at" none "$at"; done
: > ${quote(join(folder, "booted"))}
mkdir -p /run/modules/lib/modules; ln -s ${quote(join(modulesFolder, version))} /run/modules/lib/modules/
for module in ${modules.join(" ")}; do modprobe -d /run/modules $module || echo "no module $module" >&2; done
mount --bind /usr/sbin/xtables-legacy-multi "$(readlink -f /usr/sbin/iptables)"
: > /run/xtables.lock
ip link set lo up
cd ${quote(process.cwd())}
${variables.join("\n")}
${command.map(quote).join(" ")} < /dev/null > ${quote(join(folder, "out.txt"))} 2>&1
echo $? > ${quote(join(folder, "status"))}
sync; echo o > /proc/sysrq-trigger; sleep 60
`;
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function readIfThere(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

/** The guest's memory is a file, which must be in memory itself to be fast. Containers often have little of it. */
function memoryFolder(fallback: string): string {
  if (!existsSync("/dev/shm")) return fallback;
  const { bavail, bsize } = statfsSync("/dev/shm");
  return bavail * bsize > memoryBytes * 1.5 ? "/dev/shm" : fallback;
}
