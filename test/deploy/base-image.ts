import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DebianArchive, extract } from "../../deploy/images/debian.ts";
import { defaultCache, fetchNode, hostArchitecture } from "../../deploy/images/npm.ts";
import { type DockerDaemon, findProgram } from "./docker-daemon.ts";

/** Programs that the Dockerfile's build stage runs. */
const packages = [
  ...["apt", "base-files", "bash", "coreutils", "dash", "debian-archive-keyring", "dpkg", "findutils", "grep", "gzip"],
  ...["libc-bin", "libstdc++6", "sed", "tar", "util-linux"],
];

/** Settings of the machine for its package registries. */
const settings = ["/etc/apt", "/etc/ssl/certs", "/usr/share/keyrings"];

/**
 * Makes an image that can be the Dockerfile's NODE_IMAGE, from Debian packages and the npm of this machine, because a
 * machine may reach no image registry. Returns its name. An image of an earlier test run is used again, so that
 * Docker's cache holds.
 */
export async function makeBaseImage({ docker, env }: DockerDaemon): Promise<string> {
  const architecture = hostArchitecture();
  const debs = new DebianArchive(architecture, defaultCache).download(packages);
  // From bin/npm-cli.js of the package.
  const npm = dirname(dirname(realpathSync(findProgram("npm") ?? "npm")));
  const versions = [...debs.map(({ file }) => file), process.version, readFileSync(join(npm, "package.json"), "utf8")];
  const name = `kpng-test-base:${createHash("sha256").update(versions.join("\n")).digest("hex").slice(0, 16)}`;
  if ((await docker("images", "--quiet", name)) !== "") return name;

  const root = mkdtempSync(join(tmpdir(), "kpng-base-"));
  try {
    for (const merged of ["bin", "lib", "lib64", "sbin"]) {
      mkdirSync(join(root, "usr", merged), { recursive: true });
      symlinkSync(`usr/${merged}`, join(root, merged));
    }
    extract(debs, root);
    for (const path of settings.filter((each) => existsSync(each)))
      cpSync(path, join(root, path), { recursive: true, dereference: true });
    mkdirSync(join(root, "usr/local/bin"), { recursive: true });
    cpSync(fetchNode(architecture, defaultCache), join(root, "usr/local/bin/node"));
    cpSync(npm, join(root, "usr/local/lib/node_modules/npm"), { recursive: true });
    symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(root, "usr/local/bin/npm"));
    writeFileSync(join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n");
    const certificates = process.env.NODE_EXTRA_CA_CERTS;
    if (certificates !== undefined) {
      mkdirSync(dirname(join(root, certificates)), { recursive: true });
      cpSync(certificates, join(root, certificates), { dereference: true });
    }
    const change = certificates === undefined ? [] : ["--change", `ENV NODE_EXTRA_CA_CERTS=${certificates}`];
    const tar = spawn("tar", ["--create", "--directory", root, "--owner=0", "--group=0", "."], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const load = spawn("docker", ["import", ...change, "-", name], { env, stdio: [tar.stdout, "ignore", "inherit"] });
    const [code] = await once(load, "close");
    if (code !== 0) throw new Error(`docker import failed with exit status ${code}`);
  } finally {
    rmSync(root, { recursive: true });
  }
  return name;
}
