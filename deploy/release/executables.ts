import { createHash } from "node:crypto";
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildSync } from "esbuild";
import { stringify } from "yaml";
import { repository } from "./stage.ts";
import { archive, digestOf, type Release, run } from "./tools.ts";

/** Architectures of the executables, as npm packages name them. */
export const architectures = ["x64", "arm64"] as const;

export type Architecture = (typeof architectures)[number];

/**
 * npm packages with the program node, which the package `node` also installs. Its version must be that of the Node.js
 * in node_modules. package-lock.json does not contain them, because an install script names them.
 */
const nodePackages = {
  version: "24.21.0",
  integrity: {
    x64: "sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==",
    arm64: "sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==",
  },
} as const;

/** Marks the place in the program node that tells it to look for an application; the same in each release of Node.js. */
const fuse = "NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2";

/** Returns the folder of the npm package with the program node. Errors: as {@link fetchPackage}. */
export function fetchNode(architecture: Architecture): string {
  const { version, integrity } = nodePackages;
  if (process.version !== `v${version}`)
    throw new Error(`this is Node.js ${process.version}: update nodePackages in deploy/release/executables.ts`);
  return fetchPackage(`node-linux-${architecture}`, version, integrity[architecture]);
}

/** Returns the folder of the npm package with koffi's native module. Errors: as {@link fetchPackage}. */
export function fetchKoffi(architecture: Architecture): string {
  const name = `@koromix/koffi-linux-${architecture}`;
  const { packages } = JSON.parse(readFileSync(join(repository, "package-lock.json"), "utf8"));
  const { version, integrity } = packages[`node_modules/${name}`];
  return fetchPackage(name, version, integrity);
}

/**
 * Downloads an npm package of any architecture, unpacks it in a cache and returns its folder. Errors: throws if npm
 * fails, or if the tarball has another digest.
 */
function fetchPackage(name: string, version: string, integrity: string): string {
  const cache = join(repository, "node_modules/.cache/kpng-release");
  const folder = join(cache, `${name.replace("/", "-")}-${version}`);
  if (existsSync(folder)) return folder;
  mkdirSync(cache, { recursive: true });
  const output = run(["npm", "pack", "--silent", `--pack-destination=${cache}`, `${name}@${version}`]);
  const tarball = join(cache, output.trim());
  const digest = `sha512-${createHash("sha512").update(readFileSync(tarball)).digest("base64")}`;
  if (digest !== integrity) throw new Error(`${name}@${version} has the digest ${digest}, not ${integrity}`);
  run(["tar", "--extract", "--gzip", `--file=${tarball}`, `--directory=${cache}`]);
  rmSync(tarball);
  renameSync(join(cache, "package"), folder);
  return folder;
}

/**
 * Writes `kpng-VERSION-linux-ARCHITECTURE.tar.gz`: the program kpng as one file, with license texts. krew reads no other
 * format than gzip.
 *
 * It is a single executable application of Node.js: the program node, with the modules of the bundle as assets. Modules
 * of the other programs are in it, too, but `kpng local to-NAME` runs the backends. An application for another
 * architecture needs no emulation, because nothing is compiled in advance.
 */
export function makeExecutable(release: Release, bundle: string, architecture: Architecture): void {
  const name = `kpng-${release.version}-linux-${architecture}`;
  const folder = join(release.stage, "executable", name);
  mkdirSync(folder, { recursive: true });
  const node = fetchNode(architecture);
  const executable = join(folder, "kpng");
  cpSync(join(node, "bin/node"), executable);
  run([
    join(repository, "node_modules/.bin/postject"),
    executable,
    "NODE_SEA_BLOB",
    makeBlob(release, bundle, architecture),
    "--sentinel-fuse",
    fuse,
  ]);
  for (const file of ["LICENSE", "README.md", "licenses", "npm.spdx.json"])
    cpSync(join(bundle, file), join(folder, file), { recursive: true });
  cpSync(join(node, "LICENSE"), join(folder, "licenses/node/LICENSE"));
  archive(release, folder, join(release.out, `${name}.tar.gz`));
}

/** Writes `krew.yaml`, the manifest with which `kubectl krew` installs the executables as the plug-in `kpng`. */
export function makeKrewManifest({ out, version }: Release): void {
  const platforms = architectures.map((architecture) => {
    const name = `kpng-${version}-linux-${architecture}`;
    return {
      selector: { matchLabels: { os: "linux", arch: architecture === "x64" ? "amd64" : architecture } },
      uri: `https://github.com/OWNER/kpng/releases/download/v${version}/${name}.tar.gz`,
      sha256: digestOf(join(out, `${name}.tar.gz`), "sha256"),
      bin: "kpng",
      files: [
        { from: `${name}/kpng`, to: "." },
        { from: `${name}/LICENSE`, to: "." },
      ],
    };
  });
  const manifest = {
    apiVersion: "krew.googlecontainertools.github.com/v1alpha2",
    kind: "Plugin",
    metadata: { name: "kpng" },
    spec: {
      version: `v${version}`,
      shortDescription: "Ask the watchers and nodes of kpng",
      description: "Shows what kpng, a service proxy, does with the Services of the current cluster, and why.\n",
      platforms,
    },
  };
  writeFileSync(join(out, "krew.yaml"), stringify(manifest));
}

/** Returns the path of the application that {@link makeExecutable} adds to node. */
function makeBlob({ stage }: Release, bundle: string, architecture: Architecture): string {
  const folder = join(stage, "executable");
  const source = join(import.meta.dirname, "executable-main.ts");
  // A path relative to the working folder: the application contains it.
  const main = "executable-main.cjs";
  buildSync({ entryPoints: [source], outfile: join(folder, main), bundle: true, platform: "node", format: "cjs" });
  const modules = globSync("{*.mjs,{parts,laboratory}/*.mjs}", { cwd: bundle }).toSorted();
  const koffi = join(repository, "node_modules/koffi/src/koffi");
  const blob = `${architecture}.blob`;
  const config = {
    main,
    output: blob,
    disableExperimentalSEAWarning: true,
    assets: {
      ...Object.fromEntries(modules.map((path) => [path, join(bundle, path)])),
      "koffi/index.cjs": join(koffi, "index.cjs"),
      "koffi/src/static.cjs": join(koffi, "src/static.cjs"),
      "koffi-native.cjs": join(import.meta.dirname, "koffi-native.cjs"),
      "koffi.node": join(fetchKoffi(architecture), `linux_${architecture}/koffi.node`),
    },
  };
  writeFileSync(join(folder, `${architecture}.json`), JSON.stringify(config));
  run([process.execPath, "--experimental-sea-config", `${architecture}.json`], { cwd: folder });
  return join(folder, blob);
}
