import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  createReadStream,
  existsSync,
  linkSync,
  mkdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Architecture } from "./debian.ts";
import type { ImageDefinition } from "./definition.ts";

/**
 * Image archives, without Docker. A file can be read as an OCI image layout (`ctr images import`, `skopeo copy
 * oci-archive:`) and as the output of `docker save` (`docker load`).
 *
 * The same layers and definition make the same bytes.
 */

/** A layer as an uncompressed tar file. */
export interface LayerFile {
  readonly path: string;
  /** `sha256:` and 64 hexadecimal digits. */
  readonly digest: string;
  readonly size: number;
}

export interface ArchiveOptions {
  readonly definition: ImageDefinition;
  readonly layers: readonly LayerFile[];
  readonly architecture: Architecture;
  /** Names of the image with their tags, e.g. `kpng-nft:0.1.0`. */
  readonly references: readonly string[];
  /** Time of creation, in seconds since 1970. */
  readonly epoch: number;
  /** Arguments of the entry point if a container has none. Default: none. */
  readonly command?: readonly string[] | undefined;
}

/**
 * Packs a folder as a layer in `folder`. All files belong to root, except those in `owners`, and have the time `epoch`.
 */
export async function packLayer(
  root: string,
  folder: string,
  epoch: number,
  owners: Readonly<Record<string, number>>,
): Promise<LayerFile> {
  const path = join(folder, `${createHash("sha256").update(root).digest("hex")}.tar`);
  const tar = (action: string, id: number, args: readonly string[]): void => {
    const ids = [`--owner=${id}`, `--group=${id}`, "--numeric-owner"];
    const format = ["--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"];
    const options = [...ids, ...format, "--sort=name", `--mtime=@${epoch}`, "--directory", root];
    execFileSync("tar", [action, `--file=${path}`, ...options, ...args], { stdio: ["ignore", 2, 2] });
  };
  const own = Object.keys(owners);
  tar("--create", 0, [...own.map((name) => `--exclude=./${name}`), "."]);
  for (const name of own) if (existsSync(join(root, name))) tar("--append", owners[name] ?? 0, [`./${name}`]);
  const hash = createHash("sha256");
  await pipeline(createReadStream(path), hash);
  return { path, digest: `sha256:${hash.digest("hex")}`, size: statSync(path).size };
}

/** Writes an archive to `file`. `work` is a folder for temporary files, on the same file system as the layers. */
export function writeArchive(file: string, work: string, options: ArchiveOptions): void {
  const { definition, layers, architecture, references, epoch, command } = options;
  const blobs = join(work, "blobs/sha256");
  mkdirSync(blobs, { recursive: true });
  const created = new Date(epoch * 1_000).toISOString();
  const addBlob = (value: unknown): { digest: string; size: number } => {
    const text = JSON.stringify(value);
    const hex = createHash("sha256").update(text).digest("hex");
    writeFileSync(join(blobs, hex), text);
    return { digest: `sha256:${hex}`, size: Buffer.byteLength(text) };
  };
  const config = addBlob({
    architecture,
    os: "linux",
    created,
    config: {
      User: definition.user,
      Env: definition.env,
      Entrypoint: definition.entrypoint,
      Cmd: command,
      WorkingDir: "/",
      Labels: definition.labels,
    },
    rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
    history: definition.layers.map((name) => ({ created, created_by: `layer ${name} of deploy/images/Dockerfile` })),
  });
  for (const { path, digest } of layers) linkSync(path, join(blobs, digest.replace("sha256:", "")));
  const prefix = "application/vnd.oci.image";
  const manifest = addBlob({
    schemaVersion: 2,
    mediaType: `${prefix}.manifest.v1+json`,
    config: { mediaType: `${prefix}.config.v1+json`, ...config },
    layers: layers.map(({ digest, size }) => ({ mediaType: `${prefix}.layer.v1.tar`, digest, size })),
  });
  const index = {
    schemaVersion: 2,
    mediaType: `${prefix}.index.v1+json`,
    manifests: references.map((reference) => ({
      mediaType: `${prefix}.manifest.v1+json`,
      ...manifest,
      platform: { architecture, os: "linux" },
      annotations: {
        "io.containerd.image.name": fullName(reference),
        "org.opencontainers.image.ref.name": reference,
      },
    })),
  };
  const pathOf = (digest: string): string => `blobs/${digest.replace(":", "/")}`;
  const layerPaths = layers.map(({ digest }) => pathOf(digest));
  const forDocker = [{ Config: pathOf(config.digest), RepoTags: references, Layers: layerPaths }];
  writeFileSync(join(work, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  writeFileSync(join(work, "index.json"), JSON.stringify(index));
  writeFileSync(join(work, "manifest.json"), JSON.stringify(forDocker));
  const part = `${file}.${process.pid}`;
  try {
    const options = ["--owner=0", "--group=0", "--numeric-owner", "--sort=name", `--mtime=@${epoch}`, "--mode=a+r,u+w"];
    const members = ["oci-layout", "index.json", "manifest.json", "blobs"];
    execFileSync("tar", [
      "--create",
      `--file=${part}`,
      ...options,
      "--hard-dereference",
      "--directory",
      work,
      ...members,
    ]);
    renameSync(part, file);
  } finally {
    rmSync(part, { force: true });
  }
}

/**
 * Returns the name of an image with its registry: `docker.io/library/kpng-nft:0.1.0`. `ctr` stores the name as it is
 * written, and kubelet asks for the full one.
 */
function fullName(reference: string): string {
  const [first = "", ...rest] = reference.split("/");
  if (rest.length === 0) return `docker.io/library/${reference}`;
  return /[.:]|^localhost$/.test(first) ? reference : `docker.io/${reference}`;
}
