import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { type DockerDaemon, findProgram } from "./docker-daemon.ts";

/** Programs that the Dockerfile's build stages run. */
const packages = [
  ...["apt", "base-files", "bash", "coreutils", "dash", "debian-archive-keyring", "dpkg", "findutils", "grep", "gzip"],
  ...["libc-bin", "libstdc++6", "sed", "tar", "util-linux"],
];

/** Settings of the machine for its package registries. */
const settings = ["/etc/apt", "/etc/ssl/certs", "/usr/share/keyrings"];

const root = resolve(import.meta.dirname, "../..");

/** Builds an image of deploy/images/Dockerfile from the sources in `repository`, by default these. */
export async function buildImage(docker: DockerDaemon, target: string, tag: string, repository = root): Promise<void> {
  const base = await makeBaseImage(docker);
  const file = join(repository, "deploy/images/Dockerfile");
  const args = ["--network=host", "--file", file, "--build-arg", `NODE_IMAGE=${base}`];
  await docker.docker("build", ...args, "--target", target, "--tag", tag, repository);
}

/** Fills a folder with the files of Debian packages and of everything that they depend on. */
export function unpackDebian(folder: string, names: readonly string[]): void {
  const state = mkdtempSync(join(tmpdir(), "kpng-unpack-"));
  try {
    const env = { ...process.env, UNPACK_STATE: state };
    const architecture = process.arch === "x64" ? "amd64" : process.arch;
    execFileSync("bash", [join(root, "deploy/images/unpack.sh"), architecture, folder, ...names], {
      env,
      stdio: ["ignore", "ignore", "inherit"],
    });
  } finally {
    rmSync(state, { recursive: true });
  }
}

/** Makes an image of one layer from a folder. `changes` are instructions of a Dockerfile. */
export async function importImage(
  docker: DockerDaemon,
  folder: string,
  name: string,
  changes: readonly string[],
): Promise<void> {
  const tar = join(folder, "..", `${createHash("sha256").update(name).digest("hex")}.tar`);
  execFileSync("tar", ["--create", `--file=${tar}`, "--directory", folder, "--owner=0", "--group=0", "."]);
  const options = changes.flatMap((change) => ["--change", change]);
  try {
    await docker.docker("import", ...options, tar, name);
  } finally {
    rmSync(tar);
  }
}

/**
 * Makes an image that can be the Dockerfile's NODE_IMAGE, from Debian packages and the npm of this machine, because a
 * machine may reach no image registry. Returns its name. An image of an earlier test run is used again for a week, so
 * that Docker's cache holds.
 */
async function makeBaseImage(docker: DockerDaemon): Promise<string> {
  const npm = findNpm();
  const inputs = [...packages, process.version, readFileSync(join(npm, "package.json"), "utf8"), weekOf(Date.now())];
  const name = `kpng-test-base:${createHash("sha256").update(inputs.join("\n")).digest("hex").slice(0, 16)}`;
  if ((await docker.docker("images", "--quiet", name)) !== "") return name;
  const work = mkdtempSync(join(tmpdir(), "kpng-base-"));
  const files = join(work, "root");
  try {
    await importImage(docker, files, name, fillBase(files));
  } finally {
    rmSync(work, { recursive: true });
  }
  return name;
}

/**
 * Fills a folder with what the build stages of the Dockerfile need: Debian packages, Node.js and npm, and the settings of
 * this machine for registries. Returns instructions of a Dockerfile that belong to it.
 */
export function fillBase(folder: string): readonly string[] {
  unpackDebian(folder, packages);
  for (const path of settings.filter((each) => existsSync(each)))
    cpSync(path, join(folder, path), { recursive: true, dereference: true });
  mkdirSync(join(folder, "usr/local/bin"), { recursive: true });
  cpSync(process.execPath, join(folder, "usr/local/bin/node"), { dereference: true });
  cpSync(findNpm(), join(folder, "usr/local/lib/node_modules/npm"), { recursive: true });
  symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(folder, "usr/local/bin/npm"));
  const certificates = process.env.NODE_EXTRA_CA_CERTS;
  if (certificates === undefined) return [];
  mkdirSync(dirname(join(folder, certificates)), { recursive: true });
  cpSync(certificates, join(folder, certificates), { dereference: true });
  return [`ENV NODE_EXTRA_CA_CERTS=${certificates}`];
}

/** Returns the folder of the package npm. */
function findNpm(): string {
  // The program is bin/npm-cli.js.
  return dirname(dirname(realpathSync(findProgram("npm") ?? "npm")));
}

function weekOf(ms: number): string {
  return String(Math.floor(ms / (7 * 24 * 3_600_000)));
}
