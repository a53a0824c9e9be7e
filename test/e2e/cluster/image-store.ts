import { createHash } from "node:crypto";
import { cpSync, existsSync, globSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runCommand } from "@kpng/laboratory/laboratory.ts";
import { testCache, withLock } from "../../cluster/test-cache.ts";
import { keepUsed } from "../cache.ts";
import { makeContainerdConfig } from "./node-files.ts";

/**
 * Archives of the images that containerd has from the start; no image can be pulled. The proxy's change with the sources
 * and are not kept in the cache.
 */
export interface ImageSource {
  readonly tests: readonly string[];
  readonly proxy: readonly string[];
}

/** Longest duration of an import on a busy machine; usually it takes some seconds for each archive. */
const importTimeoutMs = 300_000;

/** Makes a store with all images at `to`, a folder in the cache of test/e2e. */
export async function makeImageStore(images: ImageSource, to: string): Promise<void> {
  await copyImageStore(await keepImageStore(images.tests), to);
  if (images.proxy.length > 0) await importArchives(to, images.proxy);
}

/**
 * Returns a folder with the data of a containerd that has imported the archives. It is kept in the cache while it is
 * used, so it is for images that seldom change.
 *
 * Errors: those of containerd and `ctr`; no folder is left.
 */
async function keepImageStore(archives: readonly string[]): Promise<string> {
  const cache = testCache("e2e");
  mkdirSync(cache, { recursive: true });
  const store = join(cache, `store-${await identityOf(archives)}`);
  await withLock(`${cache}/store.lock`, async () => {
    if (existsSync(store)) return keepUsed("store-", store);
    const unfinished = mkdtempSync(join(cache, ".store-"));
    try {
      await importArchives(join(unfinished, "data"), archives);
      renameSync(join(unfinished, "data"), store);
    } finally {
      rmSync(unfinished, { recursive: true, force: true });
    }
  });
  return store;
}

/**
 * Copies a store by hard links, in less than a second: containerd never changes the files of an image. Its databases
 * are copied. `to` must be on the same file system.
 */
export async function copyImageStore(from: string, to: string): Promise<void> {
  const { exitCode, stderr } = await runCommand(["cp", "--archive", "--link", from, to]);
  if (exitCode !== 0) throw new Error(`cannot copy ${from}: ${stderr.trim()}`);
  for (const database of globSync("*/*.db", { cwd: from })) {
    rmSync(join(to, database));
    cpSync(join(from, database), join(to, database));
  }
}

/** Imports archives into a store, which may not exist yet. Errors: those of containerd and `ctr`. */
async function importArchives(store: string, archives: readonly string[]): Promise<void> {
  const configuration = `${store}.toml`;
  writeFileSync(configuration, makeContainerdConfig(store));
  const script = `
    mount -t tmpfs tmpfs /run
    containerd --config "$0" >"$0.log" 2>&1 & containerd=$!
    until ctr version >/dev/null 2>&1; do kill -0 $containerd || { tail -n 20 "$0.log" >&2; exit 1; }; sleep 0.1; done
    for archive; do ctr --namespace k8s.io images import "$archive" || exit 1; done
    kill $containerd; wait $containerd`;
  // In namespaces of its own: the machine may have a containerd.
  const isolated = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
  const command = [...isolated, "sh", "-c", script, configuration, ...archives];
  const { exitCode, stderr } = await runCommand(command, "", importTimeoutMs);
  if (exitCode !== 0) throw new Error(`cannot import ${archives.join(", ")}: ${stderr.trim()}`);
}

/** Returns a name for the images of the archives: their names, and the digests that cover their contents. */
async function identityOf(archives: readonly string[]): Promise<string> {
  const hash = createHash("sha256");
  for (const archive of archives) {
    const { exitCode, stdout, stderr } = await runCommand(["tar", "-xOf", archive, "manifest.json"]);
    if (exitCode !== 0) throw new Error(`cannot read ${archive}: ${stderr.trim()}`);
    hash.update(stdout);
  }
  return hash.digest("hex").slice(0, 16);
}
