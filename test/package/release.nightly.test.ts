import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { getOrMake } from "@kpng/model/collections.ts";
import { reasonOf } from "@kpng/process/log.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ImageBuilder, startImageBuilder } from "../deploy/image-builder.ts";
import { describePackets } from "../kernel/describe-packets.ts";
import { findKubectl } from "../manifests/find-kubectl.ts";

const version = "0.99.0-rc.1";
/** Compressing two executables takes minutes on a busy machine. */
const releaseLimitMs = 1_200_000;

const kubectl = await findKubectl();
const folder = temporaryFolder(afterAll);
const release = join(folder, "release");
/** Folder of programs, in place of the PATH: all of Debian's except Node.js and npm. */
const tools = join(folder, "tools");
/** Reason why no release could be made; undefined if it could. */
let obstacle: string | undefined;
/** Reason why it has no images; undefined if it has. */
let noImages: string | undefined;
let log = "";

interface ImageIndex {
  readonly manifests: readonly {
    readonly digest: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly platform?: { readonly architecture: string };
  }[];
}

/** Makes a release of the working tree, and returns what it printed. */
function makeRelease(to: string, builder?: ImageBuilder): { readonly status: number | null; readonly stderr: string } {
  const path = `${dirname(kubectl ?? "")}:${process.env.PATH}`;
  const args = ["deploy/release/main.ts", version, to, "--allow-dirty", ...(builder === undefined ? [] : ["--images"])];
  return spawnSync(process.execPath, args, { encoding: "utf8", env: { ...process.env, ...builder?.env, PATH: path } });
}

/** Runs the unpacked executable of this architecture without Node.js on the PATH. */
function runExecutable(...args: readonly string[]): ReturnType<typeof spawnSync> & { readonly stdout: string } {
  return spawnSync(executableOf(process.arch), args, { encoding: "utf8", env: { PATH: tools }, cwd: folder });
}

function executableOf(architecture: string): string {
  return join(folder, `kpng-${version}-linux-${architecture}/kpng`);
}

/** Makes the tests skip with a reason; with CI=true, fail. */
function cannot(reason: string): void {
  if (process.env.CI === "true") throw new Error(reason);
  obstacle = reason;
}

beforeAll(async () => {
  if (kubectl === undefined) return cannot("no kubectl");
  const builder = await startImageBuilder(join(folder, "builder")).catch(reasonOf);
  if (typeof builder === "string") noImages = builder;
  const { status, stderr } = makeRelease(release, typeof builder === "string" ? undefined : builder);
  if (typeof builder !== "string") await builder[Symbol.asyncDispose]();
  if (status !== 0 && /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH/.test(stderr))
    return cannot(`the npm registry is not reachable: ${stderr}`);
  if (status !== 0) throw new Error(stderr);
  log = stderr;
  for (const name of globSync("*-linux-*.tar.gz", { cwd: release })) {
    execFileSync("tar", ["--extract", "--gzip", `--file=${join(release, name)}`, `--directory=${folder}`]);
  }
  mkdirSync(tools);
  for (const place of ["/usr/bin", "/usr/sbin"]) {
    const isNode = /^(?:node|nodejs|npm|npx)$/;
    const names = readdirSync(place).filter((name) => !isNode.test(name) && !existsSync(join(tools, name)));
    for (const name of names) symlinkSync(join(place, name), join(tools, name));
  }
}, releaseLimitMs);

test("a release has every part, in its version, and sums that match", (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const backends = ["callout", "ebpf", "iptables", "ipvs", "json", "nft", "userspace"];
  const expected = [
    ...["LICENSE", "RELEASE_NOTES.md", "SHA256SUMS", "krew.yaml", `kpng-${version}.spdx.json`],
    ...["kpng", "kpng-backend-kit", "kpng-watcher"].map((name) => `${name}-${version}.tgz`),
    ...["x64", "arm64"].map((architecture) => `kpng-${version}-linux-${architecture}.tar.gz`),
    ...["go", "kubernetes"].map((name) => `kpng-${name}-${version}.tar.gz`),
    `kpng-chart-${version}.tgz`,
    ...backends.map((name) => `install-${name}.yaml`),
  ];
  const isPython = (name: string): boolean => /\.whl$|^kpng-[\d.]+\w*\.tar\.gz$/.test(name);
  const names = readdirSync(release).filter((name) => !name.endsWith(".oci.tar"));
  expect(names.filter((name) => !isPython(name)).toSorted()).toEqual(expected.toSorted());
  // A machine without Python's venv skips this part.
  expect(names.filter(isPython), log).toHaveLength(log.includes("WITHOUT") ? 0 : 2);
  execFileSync("sha256sum", ["--check", "--strict", "--quiet", "SHA256SUMS"], { cwd: release });
  for (const name of backends) {
    const images = readFileSync(join(release, `install-${name}.yaml`), "utf8").match(/(?<= image: ).*/g);
    expect(new Set(images)).toEqual(new Set([`kpng-${name}:${version}`, `kpng-watcher:${version}`]));
  }
});

test("each image is for both architectures, and has the name that the manifests ask for", (context) => {
  context.skip(obstacle !== undefined, obstacle);
  context.skip(noImages !== undefined, noImages);
  const targets = ["callout", "ebpf", "iptables", "ipvs", "json", "nft", "userspace", "watcher"];
  const files = readdirSync(release).filter((name) => name.endsWith(".oci.tar"));
  /** Names of the files in each layer; the images share their large ones. */
  const listings = new Map<string, string>();
  expect(files.toSorted()).toEqual(targets.map((name) => `kpng-${name}-${version}.oci.tar`));
  for (const [index, file] of files.entries()) {
    const read = (...args: readonly string[]): Buffer =>
      execFileSync("tar", [...args, `--file=${join(release, file)}`], { maxBuffer: 1 << 28 });
    const parse = <Content>(path: string): Content =>
      JSON.parse(String(read("--extract", "--to-stdout", path))) as Content;
    const blob = (digest: string): string => `blobs/${digest.replace(":", "/")}`;
    const [named] = parse<ImageIndex>("index.json").manifests;
    expect(named?.annotations?.["io.containerd.image.name"]).toBe(
      `docker.io/library/kpng-${targets[index]}:${version}`,
    );
    const images = parse<ImageIndex>(blob(named?.digest ?? "")).manifests;
    expect(images.map(({ platform }) => platform?.architecture)).toEqual(["amd64", "arm64"]);
    for (const { digest, platform } of images) {
      const { layers } = parse<{ readonly layers: readonly { readonly digest: string }[] }>(blob(digest));
      const contents = layers.map((layer) =>
        getOrMake(listings, layer.digest, () => {
          const input = read("--extract", "--to-stdout", blob(layer.digest));
          return execFileSync("tar", ["--list", "--gzip"], { input, encoding: "utf8" });
        }),
      );
      const cpu = platform?.architecture === "amd64" ? "x64" : "arm64";
      expect(contents.join(""), file).toContain(`linux_${cpu}/koffi.node\n`);
    }
  }
});

test("the executable starts with little more than Node.js itself takes, and simulates a cluster", (context) => {
  context.skip(obstacle !== undefined, obstacle);
  expect(String(runExecutable("--version").stdout)).toMatch(new RegExp(`^kpng ${RegExp.escape(version)} `));
  // The last line has the CPU time of the shell's children. In a pipeline, `times` would have none.
  const script = 'for n in 1 2 3 4 5; do "$0" "$1"; done && times';
  const cpuOf = (program: string, option: string): number => {
    const output = execFileSync("bash", ["-c", script, program, option], { encoding: "utf8" });
    const [, minutes, seconds] = /(\d+)m([\d.]+)s .*\n$/.exec(output) ?? [];
    return Number(minutes) * 60 + Number(seconds);
  };
  expect(cpuOf(executableOf(process.arch), "--version")).toBeLessThan(5 * cpuOf(process.execPath, "--eval=0"));
  const { stdout, stderr } = runExecutable("simulate", "--services", "5", "get", "services", "-o", "name");
  expect(stdout, String(stderr)).toBe([0, 1, 2, 3, 4].map((index) => `service/scale/service-${index}\n`).join(""));
});

test("the executable judges itself as a client of the protocol", { timeout: 60_000 }, (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const backend = [executableOf(process.arch), "local", "to-json", "--api", "{api}", "--node-name", "{node}"];
  const { stdout, stderr } = runExecutable("conformance", "protocol", "--only", "C1", "--", ...backend);
  expect(stdout, String(stderr)).toContain("1 passed, 0 failed");
});

test("the executable for arm64 is one for arm64", (context) => {
  context.skip(obstacle !== undefined, obstacle);
  // e_machine of its ELF header; 183 is EM_AARCH64.
  expect(readFileSync(executableOf("arm64")).readUInt16LE(18)).toBe(183);
});

// Agents and the watcher are the executable, too; kpng-nft needs the native module of koffi.
describePackets("the executable", () => {
  test("runs the demo", { timeout: 120_000 }, (context) => {
    context.skip(obstacle !== undefined, obstacle);
    const { status, stdout, stderr } = runExecutable("demo");
    expect(status, `${stdout}${stderr}`).toBe(0);
  });

  test.for(["iptables", "nft"])("judges its own to-%s by packets", { timeout: 120_000 }, (backend, context) => {
    context.skip(obstacle !== undefined, obstacle);
    const exceptions = join(import.meta.dirname, `../../services/backend-nft/packets.exceptions`);
    const own = ["--only", "scenario/a-cluster-ip-with-two-ports", "--exceptions", exceptions];
    const proxy = ["local", `to-${backend}`, "--api", "{api}", "--node-name", "{node}", "--state-dir", "none"];
    const words = ["packets", ...(backend === "nft" ? own : own.slice(0, 2)), "--", executableOf(process.arch)];
    const { stdout, stderr } = runExecutable("conformance", ...words, ...proxy, "{options}");
    expect(stdout, String(stderr)).toContain("1 passed, 0 failed");
  });
});

test("a second release has the same bytes", { timeout: releaseLimitMs }, (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const again = join(folder, "again");
  const { status, stderr } = makeRelease(again);
  expect(status, stderr).toBe(0);
  // Images contain the current packages of Debian, and the list of packages has their digests.
  const sums = (path: string): string =>
    readFileSync(join(path, "SHA256SUMS"), "utf8").replaceAll(/.*\.(?:oci\.tar|spdx\.json)\n/g, "");
  expect(sums(again)).toBe(sums(release));
});
