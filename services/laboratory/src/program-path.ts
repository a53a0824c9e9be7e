import { existsSync, realpathSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * Returns the path of a program of this package, given relative to this folder. In a bundle, the programs are in the
 * folder `laboratory` beside the main program; {@link laboratoryPrograms} lists them.
 */
export function programPath(file: (typeof laboratoryPrograms)[number]): string {
  const path = fileURLToPath(new URL(`./${file}`, import.meta.url));
  if (existsSync(path)) return path;
  const main = process.argv[1] ?? "";
  // The main program may be started by a link. In the executable kpng, its path is not that of a file
  // (deploy/release/executable-main.ts).
  const folder = dirname(existsSync(main) ? realpathSync(main) : main);
  return join(folder, "laboratory", basename(file).replace(/\.ts$/, ".mjs"));
}

/** Programs that processes of a laboratory run. */
export const laboratoryPrograms = ["agent/agent.ts", "relay-main.ts"] as const;
