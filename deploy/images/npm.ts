import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { bundleOptions } from "./bundle-options.ts";
import type { Architecture } from "./debian.ts";

/**
 * The files of npm packages that exist once for each architecture: Node.js itself and the native module of koffi. For
 * the architecture of this machine they are in node_modules; others are downloaded.
 */

/** Architecture as Node.js names it. */
const nodeArchitectures = { amd64: "x64", arm64: "arm64" } as const;

/** Returns the architecture of this machine. Throws if the images do not exist for it. */
export function hostArchitecture(): Architecture {
  if (process.arch === "x64") return "amd64";
  if (process.arch === "arm64") return "arm64";
  throw new Error(`no images for ${process.arch}; use --arch amd64 or --arch arm64`);
}

/** Folder for downloads that later builds need again. */
export const defaultCache = join(homedir(), ".cache/kpng/images");

const packages = join(bundleOptions.absWorkingDir, "node_modules");

/** Returns the path of the program `node` for the architecture, in the version of the npm package `node`. */
export function fetchNode(architecture: Architecture, cache: string): string {
  const installed = join(packages, "node/bin/node");
  if (nodeArchitectures[architecture] === process.arch && existsSync(installed)) return installed;
  const { version } = JSON.parse(readFileSync(join(packages, "node/package.json"), "utf8")) as { version: string };
  return join(fetchPackage(`node-linux-${nodeArchitectures[architecture]}`, version, undefined, cache), "bin/node");
}

/** Returns the folder of koffi's native module for the architecture, in the locked version. */
export function fetchKoffi(architecture: Architecture, cache: string): string {
  const name = koffiPackage(architecture);
  const installed = join(packages, name);
  if (existsSync(installed)) return installed;
  const lock = JSON.parse(readFileSync(join(bundleOptions.absWorkingDir, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity: string }>>;
  };
  const locked = lock.packages[`node_modules/${name}`];
  if (locked === undefined) throw new Error(`package-lock.json lacks ${name}`);
  return fetchPackage(name, locked.version, locked.integrity, cache);
}

/** Name of the package with koffi's native module. */
export function koffiPackage(architecture: Architecture): string {
  return `@koromix/koffi-linux-${nodeArchitectures[architecture]}`;
}

/** Downloads a package unless it is in the cache. Throws if its bytes do not have the digest of the lock file. */
function fetchPackage(name: string, version: string, integrity: string | undefined, cache: string): string {
  const folder = join(cache, "npm", `${name.replace("/", "-")}-${version}`);
  if (existsSync(folder)) return folder;
  const part = `${folder}.${process.pid}`;
  mkdirSync(part, { recursive: true });
  try {
    // npm itself compares the bytes with the digest that the registry gives.
    const args = ["pack", "--silent", "--pack-destination", part, `${name}@${version}`];
    const file = join(part, execFileSync("npm", args, { encoding: "utf8", stdio: ["ignore", "pipe", 2] }).trim());
    const digest = `sha512-${createHash("sha512").update(readFileSync(file)).digest("base64")}`;
    if (integrity !== undefined && integrity !== digest)
      throw new Error(`${name}@${version} has digest ${digest}, but package-lock.json has ${integrity}`);
    execFileSync("tar", ["--extract", "--file", file, "--directory", part, "--strip-components=1"]);
    rmSync(file);
    renameSync(part, folder);
  } finally {
    rmSync(part, { recursive: true, force: true });
  }
  return folder;
}
