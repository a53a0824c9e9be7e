import { fileURLToPath } from "node:url";

/** A program that runs in guests, too. *Shape:* its folder in `services`. */
export type Program = "cli" | "backend-ipvs" | "backend-iptables";

/** Name of the variable with the folder of bundles. */
export const bundlesVariable = "KPNG_TEST_BUNDLES";

/**
 * Returns the file to run for a program: its `main.ts`, or its bundle if the process runs in a guest, where reading
 * hundreds of files takes seconds.
 */
export function programFile(program: Program): string {
  const folder = process.env[bundlesVariable];
  if (folder !== undefined) return `${folder}/${program}.mjs`;
  return fileURLToPath(new URL(`../../../services/${program}/src/main.ts`, import.meta.url));
}
