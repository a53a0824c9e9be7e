import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statfsSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { testCache, withLock } from "../cluster/test-cache.ts";

const run = promisify(execFile);

const qemu = "/usr/bin/qemu-system-x86_64";
const packageByFile: Readonly<Record<string, string>> = {
  [qemu]: "qemu-system-x86",
  "/bin/busybox": "busybox-static",
  "/usr/sbin/modprobe": "kmod",
  "/usr/bin/xz": "xz-utils",
  "/usr/bin/apt-get": "apt",
};

/** Returns what is not installed; undefined if QEMU can be tried. */
function whyNoQemu(): string | undefined {
  const missing = Object.entries(packageByFile).filter(([path]) => !existsSync(path));
  if (missing.length === 0) return undefined;
  const packages = missing.map(([, name]) => name).join(" ");
  return `not found: ${missing.map(([path]) => path).join(", ")} (Debian: apt-get install --no-install-recommends ${packages})`;
}

/**
 * Boots Debian's own kernel in QEMU's software emulation, on a copy-on-write view of this machine's files. It is slower
 * than user-mode Linux by an order of magnitude, and boots on every CPU.
 */
async function bootQemu(options: GuestOptions): Promise<MachineEnd> {
  const { folder, memoryMiB = 1_024, network } = options;
  const kernel = await findKernel().catch((error: unknown) => ({ reason: reasonOf(error) }));
  if (typeof kernel !== "string") return { kind: "not-booted", reason: `no kernel for QEMU: ${kernel.reason}` };
  const version = readFileSync(join(kernel, "version"), "utf8").trim();
  await writeInit(
    { ...options, command: options.emulatedCommand ?? options.command },
    `for at in /run /dev/shm; do mkdir -p $at; mount -t tmpfs tmpfs $at; done
mkdir -p /lib/modules; ln -sfn ${quote(join(kernel, "lib/modules", version))} /lib/modules/
for module in ${guestModules.join(" ")}; do modprobe $module || echo "no module $module" >&2; done
${network === undefined ? "" : `modprobe virtio_net; ip link set eth0 name ${guestLink}`}`,
  );
  const share = (path: string, tag: string, more = "") => [
    "-virtfs",
    `local,path=${path},mount_tag=${tag},security_model=none,multidevs=remap${more}`,
  ];
  const command = [
    ...[qemu, "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2"],
    // What the guest writes is in its memory, too.
    ...["-m", `${memoryMiB + 1_024}M`, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
    ...["-serial", "stdio", "-kernel", join(kernel, "vmlinux"), "-initrd", join(kernel, "initrd.img")],
    ...["-append", `console=ttyS0 quiet panic=-1 mitigations=off shared=${folder}`],
    ...share("/", "root", ",readonly=on"),
    ...share(folder, "shared"),
    ...(network === undefined ? [] : tapDevice(network)),
  ];
  return bootMachine({ name: "QEMU", command }, options);
}

function tapDevice({ tap }: GuestNetwork): readonly string[] {
  return ["-netdev", `tap,id=net,ifname=${tap},script=no,downscript=no`, "-device", "virtio-net-pci,netdev=net"];
}

/** Returns the folder of the kernel. The first call downloads it; see `qemu-kernel.sh`. */
async function findKernel(): Promise<string> {
  const cache = testCache("guest");
  await run("mkdir", ["-p", cache]);
  return withLock(join(cache, "kernel.lock"), async () => {
    const { stdout } = await run(join(import.meta.dirname, "qemu-kernel.sh"), [cache], { maxBuffer: 16 << 20 });
    return stdout.trim();
  });
}

const modulesFolder = "/usr/lib/uml/modules";

/** A kernel to boot instead of Debian's, with everything that `guestModules` names built in. See docs/design/tests.md. */
const ownKernel = process.env.KPNG_GUEST_KERNEL;
const program = ownKernel ?? "/usr/bin/linux.uml";

/** Returns what is not installed; undefined if user-mode Linux can be tried. */
function whyNoUml(): string | undefined {
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
async function bootUml(options: GuestOptions): Promise<MachineEnd> {
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
    ...(network === undefined ? [] : [`${guestLink}:transport=tap,ifname=${network.tap}`]),
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

/** Kernel modules of a guest, loaded at its start. */
const guestModules = [
  ...["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_sh", "ip_vs_mh", "dummy", "veth", "bridge"],
  ...["br_netfilter", "iptable_filter", "iptable_nat", "iptable_mangle"],
  ...["ip6table_filter", "ip6table_nat", "ip6table_mangle", "nf_conntrack_netlink"],
  ...["xt_set", "xt_conntrack", "xt_mark", "xt_comment", "xt_MASQUERADE", "xt_tcpudp", "ipt_REJECT", "ip6t_REJECT"],
  ...["ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet", "ip_set_hash_netnet"],
  "ip_set_bitmap_port",
  // For kube-proxy and kpng-iptables.
  ...["xt_ipvs", "xt_addrtype", "xt_physdev", "xt_statistic", "xt_recent", "xt_nat"],
] as const;

/** Network device of a guest; the name is that of user-mode Linux. */
export const guestLink = "vec0";

/** Options of a guest. */
interface GuestOptions {
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

/** A TAP device in another network namespace, which becomes the device `guestLink` of the guest. */
interface GuestNetwork {
  readonly tap: string;
  /** Starts a command in that namespace. */
  readonly start: (command: readonly string[], environment: Readonly<Record<string, string>>) => ChildProcess;
}

/** How a run in a guest ended. */
type GuestEnd = MachineEnd & {
  /** True in QEMU. */
  readonly isEmulated: boolean;
};

/** How a run of `bootMachine` ended. */
type MachineEnd =
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
async function bootMachine(machine: Machine, options: GuestOptions): Promise<MachineEnd> {
  const { folder, timeoutMs, network } = options;
  const child = (network?.start ?? start)(machine.command, machine.environment ?? {});
  child.stdin?.end();
  let console = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => (console = (console + text).slice(-20_000)));
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
async function writeInit(options: GuestOptions, prepare: string): Promise<string> {
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
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function readIfThere(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

/** Ways to boot a guest, the faster one first. `KPNG_GUEST=qemu` chooses one. */
const ways = [
  { name: "uml", whyNot: whyNoUml, boot: bootUml },
  { name: "qemu", whyNot: whyNoQemu, boot: bootQemu },
].filter(({ name }) => name === (process.env.KPNG_GUEST ?? name));

/** Returns what is not installed; undefined if a guest can be tried. */
export function whyNoGuest(): string | undefined {
  if (process.getuid?.() !== 0) return "a guest with IPVS needs root";
  const tools = ["/usr/sbin/ipvsadm", "/usr/sbin/ipset"].filter((path) => !existsSync(path));
  if (tools.length > 0) return `not found: ${tools.join(", ")} (Debian: apt-get install ipvsadm ipset)`;
  const reasons = ways.map(({ whyNot }) => whyNot());
  return reasons.includes(undefined) ? undefined : reasons.join("; ");
}

/**
 * Boots a kernel with IPVS on a view of this machine's files, runs a command as root in it, and powers it off. Tests of
 * IPVS use it, because the kernels of test machines often lack IPVS. The first way that boots is taken. See
 * docs/design/tests.md.
 */
export async function runInGuest(options: GuestOptions): Promise<GuestEnd> {
  const reasons: string[] = [];
  for (const { name, whyNot, boot } of ways) {
    const missing = whyNot();
    const end = missing === undefined ? await boot(options) : ({ kind: "not-booted", reason: missing } as const);
    if (end.kind !== "not-booted") return { ...end, isEmulated: name === "qemu" };
    reasons.push(end.reason);
    for (const file of ["out.txt", "status"]) await rm(join(options.folder, file), { force: true });
  }
  return { kind: "not-booted", reason: reasons.join("; "), isEmulated: false };
}
