import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { GuestEnd, GuestOptions } from "./boot.ts";
import { bootQemu, whyNoQemu } from "./qemu.ts";
import { bootUml, whyNoUml } from "./uml.ts";

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
 * docs/decisions/0049 and 0078.
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
