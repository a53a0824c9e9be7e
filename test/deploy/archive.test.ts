import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };

// What an image says about itself, and that a second build makes the same bytes. Separate from containers.test.ts, as
// it needs no Docker, and so runs on every Debian machine.

const canBuild = existsSync("/usr/bin/apt-get") || process.env.CI === "true";

/** Time limit of two builds on a busy machine that has to download the packages, in milliseconds. */
const timeout = 600_000;

/** Builds the image `nft` at a path, and returns what reads from the archive. */
function build(file: string) {
  execFileSync(process.execPath, ["deploy/images/build.ts", "--target", "nft", "--output", file], { stdio: "pipe" });
  const read = (path: string): Buffer =>
    execFileSync("tar", ["--extract", "--to-stdout", `--file=${file}`, path], { maxBuffer: 2 ** 30 });
  const parse = (path: string): unknown => JSON.parse(read(path).toString());
  return { read, parse, sbom: readFileSync(`${file}.cdx.json`, "utf8") };
}

test.skipIf(!canBuild)(
  "a second build makes the same bytes, with labels, and a list of all packages in the image",
  { timeout },
  () => {
    const folder = mkdtempSync(join(tmpdir(), "kpng-archive-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const { read, parse, sbom } = build(join(folder, "first.tar"));
    const second = build(join(folder, "second.tar"));
    const manifest = parse("manifest.json") as [{ readonly Config: string; readonly Layers: readonly string[] }];
    // The names of the layers are the digests of their content.
    expect(second.parse("manifest.json")).toEqual(manifest);
    expect(second.sbom).toBe(sbom);

    const [{ Config, Layers }] = manifest;
    const { config } = parse(Config) as { readonly config: { readonly Labels: Readonly<Record<string, string>> } };
    expect(config.Labels).toMatchObject({
      "org.opencontainers.image.title": "kpng-nft",
      "org.opencontainers.image.version": packageJson.version,
      "org.opencontainers.image.licenses": packageJson.license,
      "org.opencontainers.image.revision": expect.stringMatching(/^[0-9a-f]{40}(-dirty)?$|^unknown$/),
    });

    const files = Layers.flatMap((layer) =>
      execFileSync("tar", ["--list"], { input: read(layer), maxBuffer: 2 ** 30, encoding: "utf8" }).split("\n"),
    );
    const namesIn = (pattern: RegExp): readonly string[] =>
      [...new Set(files.flatMap((path) => pattern.exec(path)?.[1] ?? []))].toSorted();
    const { components } = JSON.parse(sbom) as { readonly components: readonly { readonly purl: string }[] };
    const listed = (pattern: RegExp): readonly string[] =>
      [...new Set(components.flatMap(({ purl }) => pattern.exec(purl)?.[1] ?? []))].toSorted();
    const debian = listed(/^pkg:deb\/debian\/([^@]+)@/).map(decodeURIComponent);
    expect(debian).toEqual(expect.arrayContaining(["libc6", "nftables"]));
    expect(debian).toEqual(namesIn(/var\/lib\/dpkg\/status\.d\/(.+)$/));
    const npm = listed(/^pkg:npm\/(.+)@/).map(decodeURIComponent);
    // For traces; koffi has a native module.
    expect(npm).toEqual(expect.arrayContaining(["@grpc/grpc-js", "koffi"]));
    expect(listed(/^pkg:generic\/node@(.+)$/)).toEqual([process.versions.node]);
  },
);
