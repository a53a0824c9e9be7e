import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { bundleOptions } from "../../deploy/images/bundle.ts";
import { programs } from "./program-file.ts";

/** Bundles our programs as in the images, in a second or two; `programFile` returns the bundles. */
export function bundlePrograms(folder: string): void {
  const entryPoints = Object.fromEntries(programs.map((program) => [program, `services/${program}/src/main.ts`]));
  buildSync({ ...bundleOptions, entryPoints, outdir: folder });
  // For what cannot be bundled.
  symlinkSync(join(bundleOptions.absWorkingDir, "node_modules"), join(folder, "node_modules"));
}
