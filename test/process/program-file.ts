import { fileURLToPath } from "node:url";

/** Our programs. *Shape:* their folders in `services`. */
export const programs = [
  "cli",
  "backend-callout",
  "backend-ebpf",
  "backend-iptables",
  "backend-ipvs",
  "backend-json",
  "backend-plan",
  "backend-nft",
  "backend-userspace",
] as const;
export type Program = (typeof programs)[number];

/** Name of the variable with the folder of bundles. */
export const bundlesVariable = "KPNG_TEST_BUNDLES";

/**
 * Returns the file to run for a program: its bundle, as in an image, if `test/run.ts` or the host of a guest has made
 * bundles, because programs start four times as fast from them; otherwise its `main.ts`.
 */
export function programFile(program: Program): string {
  const folder = process.env[bundlesVariable];
  if (folder !== undefined) return `${folder}/${program}.mjs`;
  return fileURLToPath(new URL(`../../services/${program}/src/main.ts`, import.meta.url));
}
