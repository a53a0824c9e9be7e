import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { bundleOptions, laboratoryEntries } from "../../deploy/images/bundle.ts";
import { programs } from "./program-file.ts";

/**
 * Bundles our programs as in the images, in a second or two; `programFile` returns the bundles. `others` are bundled,
 * too. *Shape:* the file in the repository by the name of the bundle.
 */
export function bundlePrograms(folder: string, others: Readonly<Record<string, string>> = {}): void {
  const mains = Object.fromEntries(programs.map((program) => [program, `services/${program}/src/main.ts`]));
  const entryPoints = { ...mains, ...laboratoryEntries, ...others };
  buildSync({ ...bundleOptions, entryPoints, outdir: folder });
  // For what cannot be bundled.
  symlinkSync(join(bundleOptions.absWorkingDir, "node_modules"), join(folder, "node_modules"));
}
