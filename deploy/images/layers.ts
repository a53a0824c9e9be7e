import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { bundlePrograms, type PackageFolders } from "./bundle.ts";
import { bundleOptions } from "./bundle-options.ts";
import { type Architecture, DebianArchive, extract } from "./debian.ts";
import { fetchNode } from "./npm.ts";
import { type Component, debianComponent, nodeComponent, npmComponents, writeSbom } from "./sbom.ts";

/**
 * The layers of the images, and what each contains. `build.ts` writes them to folders; the Dockerfile says which image
 * consists of which. A new backend adds its tools here and a stage there.
 */
interface LayerContent {
  /** Debian packages with the programs that a process of this image runs; their dependencies are added. */
  readonly packages: readonly string[];
  /** Files of the repository, and where they are in the image. */
  readonly files?: Readonly<Record<string, string>>;
}

/** Libraries of Node.js, and /etc/os-release, which tells scanners the distribution. */
const runtimePackages = ["base-files", "libc6", "libgcc-s1", "libstdc++6", "netbase"];

const tools: Readonly<Record<string, LayerContent>> = {
  iptables: { packages: ["conntrack", "iptables"] },
  nft: { packages: ["conntrack", "nftables"] },
  // No kmod: the kernel loads the modules of IPVS itself.
  ipvs: { packages: ["conntrack", "ipset", "iproute2", "iptables", "ipvsadm"] },
  // No compiler: the programs are compiled already.
  ebpf: { packages: ["conntrack", "nftables"] },
  userspace: { packages: ["conntrack", "iproute2", "nftables"] },
  // A shell and basic tools for the program of the user.
  callout: {
    packages: ["conntrack", "coreutils", "dash", "grep", "iptables", "sed"],
    files: { "examples/all-ip": "usr/share/kpng/all-ip" },
  },
};

/** Links that maintainer scripts of the packages make. A link is made where its target exists. */
const alternatives: Readonly<Record<string, string>> = Object.fromEntries(
  ["iptables", "ip6tables"].flatMap((name) =>
    ["", "-save", "-restore"].map((suffix) => [`usr/sbin/${name}${suffix}`, `${name}-nft${suffix}`]),
  ),
);

/** Folders that packages expect to be links into /usr. */
const mergedFolders = ["bin", "lib", "sbin"];

export interface LayerOptions {
  readonly architecture: Architecture;
  /** Folder for downloads that later runs need again. */
  readonly cache: string;
  /** Program `node` of the architecture. Default: the one of the npm package `node`, downloaded if need be. */
  readonly node: string | undefined;
}

/** Time of every file in a layer of packages, in seconds: the same packages make the same bytes on any day. */
export const packageEpoch = 0;

/**
 * Writes each layer of `names` to a folder of its name in `folder`.
 *
 * Needs a Debian machine with npm packages installed, and access to the package registries of both.
 */
export async function writeLayers(names: readonly string[], folder: string, options: LayerOptions): Promise<void> {
  const archive = new DebianArchive(options.architecture, options.cache);
  const runtime = archive.download(runtimePackages);
  for (const name of names) {
    const layer = join(folder, name);
    mkdirSync(layer, { recursive: true });
    let components: readonly Component[] = [];
    if (name === "programs") components = npmComponents(await writePrograms(layer, options), layer);
    else if (name === "runtime") {
      linkMergedFolders(layer, options.architecture);
      extract(runtime, layer);
      finishRuntime(layer, options.node ?? fetchNode(options.architecture, options.cache));
      components = [nodeComponent, ...runtime.map((each) => debianComponent(each, options.architecture))];
    } else {
      const content = tools[name];
      if (content === undefined) throw new Error(`no layer ${name} in deploy/images/layers.ts`);
      const present = new Set(runtime.map((each) => each.name));
      // Only while packages are extracted: the links themselves are in the runtime layer.
      linkMergedFolders(layer, options.architecture);
      const packages = archive
        .download([...runtimePackages, ...content.packages])
        .filter((each) => !present.has(each.name));
      extract(packages, layer);
      for (const merged of [...mergedFolders, "lib64"]) rmSync(join(layer, merged), { force: true });
      linkAlternatives(layer);
      for (const [from, to] of Object.entries(content.files ?? {}))
        cpSync(join(bundleOptions.absWorkingDir, from), join(layer, to), { recursive: true });
      components = packages.map((each) => debianComponent(each, options.architecture));
    }
    writeSbom(join(layer, "usr/share/kpng/sbom", `${name}.cdx.json`), components);
  }
}

async function writePrograms(layer: string, { architecture, cache }: LayerOptions): Promise<PackageFolders> {
  const folder = join(layer, "usr/local/lib/kpng");
  const packages = await bundlePrograms(folder, architecture, cache);
  // The programs share most of their files, and load them from the folder that their symbolic link points to.
  mkdirSync(join(layer, "usr/local/bin"), { recursive: true });
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".mjs"))) {
    const path = join(folder, file);
    // Images lack /usr/bin/env.
    writeFileSync(path, readFileSync(path, "utf8").replace(/^#!.*/, "#!/usr/local/bin/node"));
    symlinkSync(`../lib/kpng/${file}`, join(layer, "usr/local/bin", file.replace(".mjs", "")));
  }
  return packages;
}

function linkMergedFolders(layer: string, architecture: Architecture): void {
  for (const name of architecture === "amd64" ? [...mergedFolders, "lib64"] : mergedFolders) {
    mkdirSync(join(layer, "usr", name), { recursive: true });
    symlinkSync(`usr/${name}`, join(layer, name));
  }
}

function linkAlternatives(layer: string): void {
  const files = new Set(
    ["usr/bin", "usr/sbin"].flatMap((name) => readdirSync(join(layer, name)).map((file) => join(name, file))),
  );
  for (const [link, target] of Object.entries(alternatives))
    if (files.has(join(dirname(link), target))) symlinkSync(target, join(layer, link));
}

/** Adds Node.js, users, and folders that maintainer scripts make. */
function finishRuntime(layer: string, node: string): void {
  mkdirSync(join(layer, "usr/local/bin"), { recursive: true });
  cpSync(node, join(layer, "usr/local/bin/node"));
  chmodSync(join(layer, "usr/local/bin/node"), 0o755);
  const users = ["root:x:0:0:root:/root:/usr/sbin/nologin", "kpng:x:65532:65532:kpng:/:/usr/sbin/nologin"];
  writeFileSync(join(layer, "etc/passwd"), `${users.join("\n")}\n`);
  writeFileSync(join(layer, "etc/group"), "root:x:0:\nkpng:x:65532:\n");
  for (const [name, target] of [
    ["var/run", "/run"],
    ["var/lock", "/run/lock"],
  ] as const) {
    rmSync(join(layer, name), { recursive: true, force: true });
    symlinkSync(target, join(layer, name));
  }
  // Folder of the unix socket between watcher and backends on one machine. A volume mounted here starts with this owner
  // and mode. The socket's group may connect, so a backend that runs as root joins it and needs no more capabilities.
  mkdirSync(join(layer, "run/kpng"));
  chmodSync(join(layer, "run/kpng"), 0o770);
}

/** Owner of each file that root does not own, as user and group. */
export const owners: Readonly<Record<string, number>> = { "run/kpng": 65532 };
