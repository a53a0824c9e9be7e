import { execFile } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { withLock } from "../../cluster/lock.ts";
import { testCache } from "../../cluster/test-cache.ts";

const run = promisify(execFile);

/** Backends of kpng that the tests install. */
export const backends = ["iptables", "nft", "ipvs"] as const;
export type Backend = (typeof backends)[number];

/**
 * Builds the images of the watcher and of a backend with deploy/images, and returns the paths of the archives.
 *
 * *Cost:* some seconds, after the first download of Debian packages.
 */
export async function buildImages(backend: Backend): Promise<readonly string[]> {
  const targets = ["watcher", backend];
  const folder = join(testCache("e2e"), "kpng-images");
  mkdirSync(folder, { recursive: true });
  const repository = resolve(import.meta.dirname, "../../..");
  const args = ["deploy/images/build.ts", "--output", `${folder}/`, "--tag", imageName];
  await withLock(`${folder}.lock`, () =>
    run(process.execPath, [...args, ...targets.flatMap((target) => ["--target", target])], { cwd: repository }),
  );
  return targets.map((target) => join(folder, `kpng-${target}.tar`));
}

/** The name that containerd looks for when a manifest says `kpng-nft:0.1.0`. */
const imageName = "docker.io/library/kpng-{target}:0.1.0";
