import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import packageJson from "../../package.json" with { type: "json" };

// What an image says about itself, that a second build makes the same bytes, and that containerd takes the archive.
// Separate from containers.test.ts, as it needs no Docker, and so runs on every Debian machine.

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

const whyNoContainerd =
  process.getuid?.() !== 0 ? "needs root" : existsSync("/usr/bin/containerd") ? undefined : "containerd is missing";

test.skipIf(!canBuild || whyNoContainerd !== undefined)(
  `the commands of the guide import an archive, under the name that kubelet asks for (${whyNoContainerd ?? "containerd"})`,
  { timeout },
  () => {
    const folder = mkdtempSync(join(tmpdir(), "kpng-import-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    build(join(folder, "kpng-nft.tar"));
    const guide = readFileSync("docs/guides/images.md", "utf8");
    const command = /^ctr .* images import kpng-nft\.tar$/m.exec(guide)?.[0] ?? "no such command";
    // In namespaces of its own: the machine may have a containerd.
    const isolated = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    const script = `
      cd "$0"
      mount -t tmpfs tmpfs /run
      containerd --root "$0/root" --state /run/containerd >log 2>&1 &
      until ctr version >/dev/null 2>&1; do kill -0 $! || { tail -n 20 log >&2; exit 1; }; sleep 0.1; done
      ${command} >&2
      ctr --namespace k8s.io run --rm --net-host docker.io/library/kpng-nft:${packageJson.version} one kpng-nft --version`;
    const { stdout, stderr, status } = spawnSync("unshare", [...isolated, "bash", "-ec", script, folder], {
      encoding: "utf8",
    });
    expect(status, stderr).toBe(0);
    expect(stdout).toMatch(new RegExp(`^kpng-nft ${packageJson.version} `));
  },
);
