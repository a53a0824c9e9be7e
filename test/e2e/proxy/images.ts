import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { testCache } from "../../cluster/test-cache.ts";
import { needDocker } from "../../deploy/docker-daemon.ts";
import { buildImage } from "../../deploy/docker-images.ts";

/** Backends of kpng that the tests install. */
export const backends = ["iptables", "nft", "ipvs", "userspace", "ebpf"] as const;
export type Backend = (typeof backends)[number];

/**
 * Builds the images of the watcher and of a backend with Docker, and returns the paths of the archives.
 *
 * *Cost:* a minute or two the first time; then what has changed.
 */
export async function buildImages(backend: Backend): Promise<readonly string[]> {
  const folder = join(testCache("e2e"), "kpng-images");
  mkdirSync(folder, { recursive: true });
  await using docker = await needDocker("machine");
  const archives: string[] = [];
  for (const target of ["watcher", backend]) {
    const name = `kpng-${target}:0.1.0`;
    await buildImage(docker, target, name);
    const archive = join(folder, `kpng-${target}.tar`);
    await docker.docker("save", "--output", archive, name);
    archives.push(archive);
  }
  return archives;
}
