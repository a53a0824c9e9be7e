import { execFile } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { withLock } from "../../cluster/lock.ts";
import { testCache } from "../../cluster/test-cache.ts";

const run = promisify(execFile);

/** Backends of kpng that the tests install. */
export const backends = ["iptables", "nft", "ipvs", "userspace", "ebpf"] as const;
export type Backend = (typeof backends)[number];

/** Which sources images are built from, and their tag. */
export interface ImageVersion {
  readonly repository: string;
  /** As in the manifests, or `previous`. */
  readonly tag: string;
}

const thisVersion: ImageVersion = { repository: resolve(import.meta.dirname, "../../.."), tag: "0.1.0" };

/**
 * Builds the images of the watcher and of a backend with deploy/images, and returns the paths of the archives.
 *
 * *Cost:* some seconds, after the first download of Debian packages.
 */
export async function buildImages(backend: Backend, { repository, tag } = thisVersion): Promise<readonly string[]> {
  const targets = ["watcher", backend];
  const folder = join(testCache("e2e"), `kpng-images${tag === thisVersion.tag ? "" : `-${tag}`}`);
  mkdirSync(folder, { recursive: true });
  // The name that containerd looks for when a manifest says `kpng-nft:0.1.0`.
  const imageName = `docker.io/library/kpng-{target}:${tag}`;
  const args = ["deploy/images/build.ts", "--output", `${folder}/`, "--tag", imageName];
  await withLock(`${folder}.lock`, () =>
    run(process.execPath, [...args, ...targets.flatMap((target) => ["--target", target])], { cwd: repository }),
  );
  return targets.map((target) => join(folder, `kpng-${target}.tar`));
}
