import { execFileSync } from "node:child_process";
import { chownSync, existsSync, lutimesSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { type LayerFile, packLayer, writeArchive } from "./archive.ts";
import { bundleOptions } from "./bundle-options.ts";
import type { Architecture } from "./debian.ts";
import { readDefinition, targetsOf } from "./definition.ts";
import { owners, packageEpoch, writeLayers } from "./layers.ts";
import { defaultCache, hostArchitecture } from "./npm.ts";
import { readSbom, writeSbom } from "./sbom.ts";

/**
 * Builds the images of the Dockerfile beside this file without Docker, and the layers of these images for the
 * Dockerfile itself.
 *
 * The steps: `layers.ts` makes folders of Debian packages and our programs, `definition.ts` reads which of them an
 * image consists of, and `archive.ts` packs them.
 */
const help = `Usage: node deploy/images/build.ts --target NAME [--target NAME…] --output FILE|FOLDER/
       node deploy/images/build.ts --layers FOLDER

Writes images as archives for "ctr images import", "docker load" and "skopeo copy oci-archive:", and beside each a list
of its contents, FILE.cdx.json. Needs a Debian machine, but neither Docker nor root.

  --target NAME    image: watcher, json, callout, iptables, nft, ipvs, ebpf, userspace or all; may be repeated
  --output PATH    file of the archive; a folder if it ends in "/" or if there are several targets
  --tag NAME       name of the image in the archive; {target} is replaced (default kpng-{target}:${packageJson.version})
  --arch NAME      amd64 or arm64 (default: this machine's)
  --cache FOLDER   downloads, for later builds (default ${defaultCache})
  --node FILE      program node of the architecture (default: from the npm package)
  --layers FOLDER  only write each layer to a folder of its name
  --help           print this

SOURCE_DATE_EPOCH sets the time of creation in seconds (default 0): the same sources and packages make the same bytes.
`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      target: { type: "string", multiple: true, default: [] },
      output: { type: "string" },
      tag: { type: "string", default: `kpng-{target}:${packageJson.version}` },
      arch: { type: "string" },
      cache: { type: "string", default: defaultCache },
      node: { type: "string" },
      layers: { type: "string" },
      help: { type: "boolean" },
    },
  });
  const { target, output, tag, arch, cache, node, layers } = values;
  if (values.help === true) {
    process.stdout.write(help);
    return;
  }
  // Folders and files have the same modes for every user.
  process.umask(0o022);
  const architecture = parseArchitecture(arch);
  const options = { architecture, cache: resolve(cache), node };
  const epoch = Number(process.env.SOURCE_DATE_EPOCH ?? 0);
  const dockerfile = readFileSync(join(import.meta.dirname, "Dockerfile"), "utf8");
  const known = targetsOf(dockerfile);
  if (layers !== undefined) {
    const names = new Set(known.flatMap((name) => readDefinition(dockerfile, name, {}).layers));
    await writeLayers([...names], resolve(layers), options);
    for (const name of names) settle(join(resolve(layers), name), name === "programs" ? epoch : packageEpoch);
    return;
  }
  const targets = target.includes("all") ? known : target;
  const unknown = targets.find((name) => !known.includes(name));
  if (targets.length === 0 || output === undefined) throw new Error("--target and --output are needed; see --help");
  if (unknown !== undefined) throw new Error(`--target ${unknown}: expected ${known.join(", ")} or all`);
  const isFolder = output.endsWith("/") || targets.length > 1;

  const work = mkdtempSync(join(tmpdir(), "kpng-images-"));
  try {
    const args = { VERSION: packageJson.version, REVISION: revision() };
    const definitions = targets.map((name) => ({ name, definition: readDefinition(dockerfile, name, args) }));
    const names = [...new Set(definitions.flatMap(({ definition }) => definition.layers))];
    await writeLayers(names, join(work, "layers"), options);
    const packed = new Map<string, LayerFile>();
    for (const name of names) {
      const time = name === "programs" ? epoch : packageEpoch;
      packed.set(name, await packLayer(join(work, "layers", name), work, time, owners));
    }
    if (isFolder) mkdirSync(resolve(output), { recursive: true });
    for (const { name, definition } of definitions) {
      const file = isFolder ? join(resolve(output), `kpng-${name}.tar`) : resolve(output);
      const reference = tag.replace("{target}", name);
      const files = definition.layers.flatMap((layer) => packed.get(layer) ?? []);
      writeArchive(file, join(work, name), { definition, layers: files, architecture, references: [reference], epoch });
      writeSbom(
        `${file}.cdx.json`,
        definition.layers.flatMap((layer) => readSbom(join(work, "layers", layer))),
      );
      process.stderr.write(`${file}: ${reference}, ${architecture}\n`);
    }
  } finally {
    rmSync(work, { recursive: true });
  }
}

function parseArchitecture(text: string | undefined): Architecture {
  if (text === undefined || text === "") return hostArchitecture();
  if (text !== "amd64" && text !== "arm64") throw new Error(`--arch ${text}: expected amd64 or arm64`);
  return text;
}

/** Commit of the working tree, or `unknown` where there is no git. */
function revision(): string {
  const args = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"];
  const cwd = bundleOptions.absWorkingDir;
  try {
    return execFileSync("git", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "unknown";
  }
}

/** Gives the files of a layer the owners and times that they have in an archive, because Docker copies both. */
function settle(layer: string, epoch: number): void {
  for (const [name, id] of Object.entries(owners)) {
    if (existsSync(join(layer, name))) chownSync(join(layer, name), id, id);
  }
  for (const entry of readdirSync(layer, { recursive: true, encoding: "utf8" }))
    lutimesSync(join(layer, entry), epoch, epoch);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`Error: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
