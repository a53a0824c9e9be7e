import { join } from "node:path";
import { reasonOf } from "@kpng/process/log.ts";
import { isExecutable } from "./executable.ts";
import { type Built, buildMissing } from "./go-build.ts";

/** Program that tests need. `etcd-3.4` is Debian's etcd, without WatchList. */
export type Program = Built | "etcd-3.4";

/** Paths of the programs, or the reason why they are not available. */
export type Binaries =
  | { readonly kind: "found"; readonly paths: Readonly<Partial<Record<Program, string>>> }
  | { readonly kind: "missing"; readonly reason: string };

/**
 * Finds the programs in the folder of KUBEBUILDER_ASSETS, otherwise in the cache outside the repository, and otherwise
 * builds them there. A build needs Go 1.26 or newer, and takes some minutes the first time.
 *
 * Errors: none; unavailable programs give `missing` with the reason.
 */
export async function findBinaries(programs: readonly Program[]): Promise<Binaries> {
  const paths: Partial<Record<Program, string>> = {};
  const toBuild: Exclude<Program, "etcd-3.4">[] = [];
  for (const program of programs) {
    if (program === "etcd-3.4") {
      if (!isExecutable("/usr/bin/etcd")) return { kind: "missing", reason: "no /usr/bin/etcd: install etcd-server" };
      paths[program] = "/usr/bin/etcd";
      continue;
    }
    const assets = process.env.KUBEBUILDER_ASSETS;
    const given = assets === undefined ? undefined : join(assets, program);
    if (given !== undefined && isExecutable(given)) paths[program] = given;
    else toBuild.push(program);
  }
  try {
    return { kind: "found", paths: { ...paths, ...(await buildMissing(toBuild)) } };
  } catch (error) {
    return { kind: "missing", reason: reasonOf(error) };
  }
}
