import { existsSync, readdirSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { bootMachine, type GuestOptions, type MachineEnd, quote, writeInit } from "./boot.ts";
import { guestModules } from "./modules.ts";

const modulesFolder = "/usr/lib/uml/modules";

/** A kernel to boot instead of Debian's, with everything that `guestModules` names built in. See decision 0078. */
const ownKernel = process.env.KPNG_GUEST_KERNEL;
const program = ownKernel ?? "/usr/bin/linux.uml";

/** Returns what is not installed; undefined if user-mode Linux can be tried. */
export function whyNoUml(): string | undefined {
  const needed = ownKernel === undefined ? [program, modulesFolder, "/usr/sbin/modprobe"] : [program];
  const missing = needed.filter((path) => !existsSync(path));
  if (missing.length === 0) return undefined;
  if (ownKernel !== undefined) return `KPNG_GUEST_KERNEL not found: ${ownKernel}`;
  return `not found: ${missing.join(", ")} (Debian: apt-get install user-mode-linux kmod)`;
}

/**
 * Boots user-mode Linux, a kernel that runs as a program, on a read-only view of this machine's files. It is the fast
 * way, and panics on CPUs with AMX (`ptrace set fp regs failed`).
 *
 * The commands `iptables` are those of iptables-legacy there: the kernel's nf_tables has no NAT.
 */
export async function bootUml(options: GuestOptions): Promise<MachineEnd> {
  const { folder, memoryMiB = 1_024, network } = options;
  // A clone in /tmp would be hidden by the guest's own file system there.
  const hiddenFolders = ["/run/", "/tmp/", "/dev/shm/"].some((at) => process.cwd().startsWith(at))
    ? [process.cwd()]
    : [];
  const init = await writeInit(
    options,
    // libuv's rings of io_uring corrupt the memory of Linux 7.2.
    `(echo 2 > /proc/sys/kernel/io_uring_disabled) 2> /dev/null
for at in /run /tmp /dev/shm; do mkdir -p $at; mount -t tmpfs tmpfs $at; done
for at in ${[folder, ...hiddenFolders].map(quote).join(" ")}; do mkdir -p "$at"; mount -t hostfs -o "$at" none "$at"; done
${ownKernel === undefined ? loadModules() : ""}
# As \`update-alternatives --set\` does, because the machine's files are read-only.
cp -a /etc/alternatives /run/alternatives
for tool in iptables ip6tables; do for end in "" -save -restore; do
  ln -sfn /usr/sbin/$tool-legacy$end /run/alternatives/$tool$end
done; done
mount --bind /run/alternatives /etc/alternatives`,
  );
  const args = [
    ...[`mem=${memoryMiB}M`, "rootfstype=hostfs", "rootflags=/", "ro", `init=${init}`],
    ...["con=null", "con0=fd:0,fd:1"],
    // System calls without ptrace, since Linux 6.16; older kernels ignore it.
    "seccomp=auto",
    ...(network === undefined ? [] : [`vec0:transport=tap,ifname=${network.tap}`]),
  ];
  const environment = { TMPDIR: memoryFolder(folder, memoryMiB) };
  return bootMachine({ name: "user-mode Linux", command: [program, ...args], environment }, options);
}

function loadModules(): string {
  const [version = ""] = readdirSync(modulesFolder);
  return `mkdir -p /run/modules/lib/modules; ln -s ${quote(join(modulesFolder, version))} /run/modules/lib/modules/
for module in ${guestModules.join(" ")}; do modprobe -d /run/modules $module || echo "no module $module" >&2; done`;
}

/** The guest's memory is a file, which must be in memory itself to be fast. Containers often have little of it. */
function memoryFolder(fallback: string, memoryMiB: number): string {
  if (!existsSync("/dev/shm")) return fallback;
  const { bavail, bsize } = statfsSync("/dev/shm");
  return bavail * bsize > memoryMiB * 1024 * 1024 * 1.5 ? "/dev/shm" : fallback;
}
