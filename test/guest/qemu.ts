import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { withLock } from "../cluster/lock.ts";
import { testCache } from "../cluster/test-cache.ts";
import { bootMachine, type GuestOptions, type MachineEnd, quote, writeInit } from "./boot.ts";
import { guestModules } from "./modules.ts";

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
export function whyNoQemu(): string | undefined {
  const missing = Object.entries(packageByFile).filter(([path]) => !existsSync(path));
  if (missing.length === 0) return undefined;
  const packages = missing.map(([, name]) => name).join(" ");
  return `not found: ${missing.map(([path]) => path).join(", ")} (Debian: apt-get install --no-install-recommends ${packages})`;
}

/**
 * Boots Debian's own kernel in QEMU's software emulation, on a copy-on-write view of this machine's files. It is slower
 * than user-mode Linux by an order of magnitude, and boots on every CPU.
 */
export async function bootQemu(options: GuestOptions): Promise<MachineEnd> {
  const { folder, memoryMiB = 1_024 } = options;
  if (options.network !== undefined) return { kind: "not-booted", reason: "QEMU: guests have no network" };
  const kernel = await findKernel().catch((error: unknown) => ({ reason: reasonOf(error) }));
  if (typeof kernel !== "string") return { kind: "not-booted", reason: `no kernel for QEMU: ${kernel.reason}` };
  const version = readFileSync(join(kernel, "version"), "utf8").trim();
  await writeInit(
    { ...options, command: options.emulatedCommand ?? options.command },
    `for at in /run /dev/shm; do mkdir -p $at; mount -t tmpfs tmpfs $at; done
mkdir -p /lib/modules; ln -sfn ${quote(join(kernel, "lib/modules", version))} /lib/modules/
for module in ${guestModules.join(" ")}; do modprobe $module || echo "no module $module" >&2; done`,
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
  ];
  return bootMachine({ name: "QEMU", command }, options);
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
