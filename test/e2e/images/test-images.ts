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
import { moduleFolder } from "../../cluster/binaries.ts";
import { testCache, withLock } from "../../cluster/test-cache.ts";
import { type DockerDaemon, needDocker } from "../../deploy/docker-daemon.ts";
import { importImage, unpackDebian } from "../../deploy/docker-images.ts";
import { keepUsed } from "../cache.ts";
import type { ProgramPaths } from "../program-paths.ts";

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
      await using docker = await needDocker("own");
      await makeAll(docker, unfinished, paths);
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

async function makeAll(docker: DockerDaemon, folder: string, paths: ProgramPaths): Promise<void> {
  const tests = "registry.k8s.io/e2e-test-images";
  const regression = "regression-issue-74839";
  const copyOf = (program: "pause" | typeof regression) => (root: string) =>
    cpSync(paths[program], join(root, program));
  await makeImage(docker, folder, { references: [pauseImage], entrypoint: ["/pause"] }, copyOf("pause"));
  await makeImage(
    docker,
    folder,
    { references: [`${tests}/${regression}:1.4`], entrypoint: [`/${regression}`] },
    copyOf(regression),
  );
  const busyBox = { references: [`${tests}/busybox:1.37.0-1`], entrypoint: [], command: ["sh"] };
  await makeImage(docker, folder, busyBox, fillWithBusyBox);
  // The tests run conntrack in the second image, and dig in the third.
  const others = ["registry.k8s.io/build-image/distroless-iptables:v0.9.6", `${tests}/glibc-dns-testing:2.0.0`];
  const agnhost = { references: [agnhostImage, ...others], entrypoint: ["/agnhost"], command: ["pause"] };
  await makeImage(docker, folder, agnhost, async (root) => {
    await fillWithDebian(root);
    cpSync(paths.agnhost, join(root, "agnhost"));
    symlinkSync("agnhost", join(root, "agnhost-2"));
    cpSync(paths.coredns, join(root, "coredns"));
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
  docker: DockerDaemon,
  folder: string,
  { references, entrypoint, command }: TestImage,
  fill: (root: string) => void | Promise<void>,
): Promise<void> {
  const [first = ""] = references;
  const [, name = ""] = /([^/]+):[^:]+$/.exec(first) ?? [];
  const work = mkdtempSync(join(folder, ".image-"));
  const root = join(work, "root");
  mkdirSync(root);
  await fill(root);
  await importImage(docker, root, first, [
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    `ENTRYPOINT ${JSON.stringify(entrypoint)}`,
    ...(command === undefined ? [] : [`CMD ${JSON.stringify(command)}`]),
  ]);
  for (const reference of references) await docker.docker("tag", first, reference);
  await docker.docker("save", "--output", join(folder, `${name}.tar`), ...references);
  rmSync(work, { recursive: true });
}

/**
 * Shell commands that finish the file system in "$0". The packages are only unpacked, so their scripts have not created
 * the links of Debian's alternatives. BusyBox provides the commands that no package does.
 */
const finish = `
  ln -sf dash "$0/usr/bin/sh"; ln -sf nc.openbsd "$0/usr/bin/nc"; ln -sf gawk "$0/usr/bin/awk"
  for tool in $("$0/usr/bin/busybox" --list); do
    for place in "$0/usr/bin/$tool" "$0/usr/sbin/$tool"; do [ ! -e "$place" ] && [ ! -L "$place" ] || continue 2; done
    ln -s busybox "$0/usr/bin/$tool"
  done
  # A test expects wget to fail at once, as that of BusyBox does.
  echo "tries = 1" >>"$0/etc/wgetrc"
  for table in passwd group; do cp "$0/usr/share/base-passwd/$table.master" "$0/etc/$table"; done
  mkdir -p "$0/uploads" "$0/tmp"; chmod 1777 "$0/tmp"
  chroot "$0" /sbin/ldconfig`;

/** Fills a folder with the commands that Kubernetes' network tests run in their pods. */
async function fillWithDebian(root: string): Promise<void> {
  unpackDebian(root, [
    ...["base-files", "base-passwd", "bash", "busybox-static", "ca-certificates", "coreutils", "dash", "findutils"],
    ...["gawk", "grep", "hostname", "libc-bin", "procps", "sed", "util-linux"],
    ...["bind9-dnsutils", "conntrack", "curl", "ethtool", "iperf", "iproute2", "iptables", "netcat-openbsd", "wget"],
  ]);
  await run("sh", ["-ec", finish, root]);
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
    hash.update(paths[program]);
  }
  return hash.digest("hex").slice(0, 16);
}
