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
  const name = basename(file).replace(/\.ts$/, ".mjs");
  return join(dirname(realpathSync(process.argv[1] ?? "")), "laboratory", name);
}

/** Programs that processes of a laboratory run. */
export const laboratoryPrograms = ["agent/agent.ts", "check/sctp.py", "relay-main.ts"] as const;
