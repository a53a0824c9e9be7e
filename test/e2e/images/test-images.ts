import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { packLayer, writeArchive } from "../../../deploy/images/archive.ts";
import { hostArchitecture } from "../../../deploy/images/npm.ts";
import { moduleFolder } from "../../cluster/go-build.ts";
import { withLock } from "../../cluster/lock.ts";
import { testCache } from "../../cluster/test-cache.ts";
import { keepUsed } from "../cache.ts";
import { type ProgramPaths, pathOf } from "../program-paths.ts";
import { fillWithDebian } from "./root-file-system.ts";

const run = promisify(execFile);

export const pauseImage = "registry.k8s.io/pause:3.10.2";
/** Image of Kubernetes' test program, which here also has CoreDNS. */
export const agnhostImage = "registry.k8s.io/e2e-test-images/agnhost:2.63.0";

/**
 * Makes the images that Kubernetes' tests ask for, under their names, and returns the paths of the archives. They are
 * kept in the cache until a program in them or this folder changes.
 *
 * *Cost:* about two minutes the first time, most of it for the root file system.
 */
export async function makeTestImages(paths: ProgramPaths): Promise<readonly string[]> {
  const cache = testCache("e2e");
  mkdirSync(cache, { recursive: true });
  const folder = join(cache, `images-${hashOfInputs(paths)}`);
  await withLock(`${cache}/images.lock`, async () => {
    if (existsSync(folder)) return keepUsed("images-", folder);
    const unfinished = mkdtempSync(join(cache, ".images-"));
    try {
      await makeAll(unfinished, paths);
      renameSync(unfinished, folder);
    } finally {
      rmSync(unfinished, { recursive: true, force: true });
    }
  });
  return globSync("*.tar", { cwd: folder })
    .toSorted()
    .map((name) => join(folder, name));
}

/** Whether the images exist, so that `makeTestImages` takes no time. */
export function hasTestImages(paths: ProgramPaths): boolean {
  return existsSync(join(testCache("e2e"), `images-${hashOfInputs(paths)}`));
}

async function makeAll(folder: string, paths: ProgramPaths): Promise<void> {
  const tests = "registry.k8s.io/e2e-test-images";
  const regression = "regression-issue-74839";
  const copyOf = (program: "pause" | typeof regression) => (root: string) =>
    cpSync(pathOf(paths, program), join(root, program));
  await makeImage(folder, { references: [pauseImage], entrypoint: ["/pause"] }, copyOf("pause"));
  await makeImage(
    folder,
    { references: [`${tests}/${regression}:1.4`], entrypoint: [`/${regression}`] },
    copyOf(regression),
  );
  const busyBox = { references: [`${tests}/busybox:1.37.0-1`], entrypoint: [], command: ["sh"] };
  await makeImage(folder, busyBox, fillWithBusyBox);
  // The tests run conntrack in the second image, and dig in the third.
  const others = ["registry.k8s.io/build-image/distroless-iptables:v0.9.6", `${tests}/glibc-dns-testing:2.0.0`];
  const agnhost = { references: [agnhostImage, ...others], entrypoint: ["/agnhost"], command: ["pause"] };
  await makeImage(folder, agnhost, async (root) => {
    await fillWithDebian(root);
    cpSync(pathOf(paths, "agnhost"), join(root, "agnhost"));
    symlinkSync("agnhost", join(root, "agnhost-2"));
    cpSync(pathOf(paths, "coredns"), join(root, "coredns"));
    const porter = join(await kubernetesSource(), "test/images/agnhost/porter");
    for (const file of ["localhost.crt", "localhost.key"]) cpSync(join(porter, file), join(root, file));
  });
}

interface TestImage {
  /** Full names with tags. */
  readonly references: readonly string[];
  readonly entrypoint: readonly string[];
  readonly command?: readonly string[];
}

/** Writes an image of one layer, which `fill` makes in a folder, to an archive. */
async function makeImage(
  folder: string,
  { references, entrypoint, command }: TestImage,
  fill: (root: string) => void | Promise<void>,
): Promise<void> {
  const [, name = ""] = /([^/]+):[^:]+$/.exec(references[0] ?? "") ?? [];
  const work = mkdtempSync(join(folder, ".image-"));
  const root = join(work, "root");
  mkdirSync(root);
  await fill(root);
  const layers = [await packLayer(root, work, 0, {})];
  const environment = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
  const definition = { layers: [name], env: environment, labels: {}, user: "", entrypoint };
  const options = { definition, layers, architecture: hostArchitecture(), references, epoch: 0, command };
  writeArchive(join(folder, `${name}.tar`), join(work, "archive"), options);
  rmSync(work, { recursive: true });
}

async function fillWithBusyBox(root: string): Promise<void> {
  for (const folder of ["bin", "tmp", "etc"]) mkdirSync(join(root, folder));
  cpSync("/bin/busybox", join(root, "bin/busybox"));
  const { stdout } = await run("/bin/busybox", ["--list"]);
  for (const tool of stdout.trim().split("\n")) {
    if (tool !== "busybox") symlinkSync("busybox", join(root, "bin", tool));
  }
}

/** Returns the folder of Kubernetes' sources in the module cache of Go. */
async function kubernetesSource(): Promise<string> {
  const options = { cwd: moduleFolder("agnhost") };
  return (await run("go", ["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"], options)).stdout.trim();
}

function hashOfInputs(paths: ProgramPaths): string {
  const hash = createHash("sha256");
  for (const source of globSync("*.ts", { cwd: import.meta.dirname }).toSorted()) {
    hash.update(readFileSync(join(import.meta.dirname, source)));
  }
  // The folder of a program is named after its sources.
  for (const program of ["pause", "agnhost", "regression-issue-74839", "coredns"] as const) {
    hash.update(pathOf(paths, program));
  }
  return hash.digest("hex").slice(0, 16);
}
