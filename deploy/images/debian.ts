import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Debian packages of one architecture, extracted without installing them. `layers.ts` makes the package layers of the
 * images with it.
 *
 * Needs the commands apt-get, dpkg-deb, flock and tar, and the package sources of the machine (/etc/apt). It changes
 * nothing there: lists and archives have a folder of their own, so any architecture works on any machine, also without
 * root.
 */

/**
 * Architecture as Docker and Debian name it. Other architectures have no prebuilt Node.js that the images could use.
 */
export type Architecture = "amd64" | "arm64";

/** One version of a Debian package. */
export interface DebianPackage {
  readonly name: string;
  /** With the epoch, e.g. `1:1.4.7-1+b2`. */
  readonly version: string;
  /** Path of the downloaded .deb file. */
  readonly file: string;
}

/**
 * Parts of a package that no program reads. Copyright files stay, as licenses demand, and so does the list of what is
 * installed, which `extract` writes.
 */
const unneeded = ["man", "info", "locale", "lintian", "bug", "bash-completion", "doc-base"];

/** Packages that others depend on, but only for maintainer scripts, which never run here. */
const skipped = ["mawk"];

/** Downloads and extracts packages. */
export class DebianArchive {
  readonly #folder: string;
  readonly #architecture: Architecture;

  /** `cache` keeps lists and packages between runs. Takes seconds: it updates the lists. */
  constructor(architecture: Architecture, cache: string) {
    this.#architecture = architecture;
    this.#folder = join(cache, `debian-${architecture}`);
    mkdirSync(join(this.#folder, "lists/partial"), { recursive: true });
    mkdirSync(join(this.#folder, "archives/partial"), { recursive: true });
    writeFileSync(join(this.#folder, "status"), "");
    this.#apt(["update"]);
  }

  /**
   * Downloads `names` and everything that they depend on.
   *
   * Returns the packages sorted by name. Throws if apt knows no such package or cannot download it.
   */
  download(names: readonly string[]): readonly DebianPackage[] {
    if (names.length === 0) return [];
    this.#apt(["install", "--yes", "--download-only", ...names]);
    // For example: Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])
    const plan = this.#apt(["install", "--simulate", ...names]);
    return [...plan.matchAll(/^Inst (\S+) \((\S+) .*\[(\w+)\]\)/gm)]
      .map(([, name = "", version = "", architecture = ""]) => ({
        name,
        version,
        file: join(this.#folder, "archives", `${name}_${version.replaceAll(":", "%3a")}_${architecture}.deb`),
      }))
      .filter(({ name }) => !skipped.includes(name))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  #apt(args: readonly string[]): string {
    const options = [
      `Dir::State::lists=${this.#folder}/lists`,
      `Dir::State::status=${this.#folder}/status`,
      `Dir::Cache=${this.#folder}`,
      `Dir::Cache::archives=${this.#folder}/archives`,
      // Images of Debian switch these off, and then each call parses the lists for a second.
      "Dir::Cache::pkgcache=pkgcache.bin",
      "Dir::Cache::srcpkgcache=srcpkgcache.bin",
      `APT::Architecture=${this.#architecture}`,
      `APT::Architectures=${this.#architecture}`,
      "APT::Install-Recommends=false",
      "APT::Sandbox::User=root",
      "Debug::NoLocking=true",
    ].flatMap((option) => ["-o", option]);
    // apt-get does not wait for another apt-get, so two builds at once would fail.
    const command = [join(this.#folder, "lock"), "apt-get", "-qq", ...options, ...args];
    return execFileSync("flock", command, { encoding: "utf8", stdio: ["ignore", "pipe", 2] });
  }
}

/**
 * Extracts packages to `folder`, whose symbolic links to folders (`lib` to `usr/lib`) are followed, and records them as
 * vulnerability scanners expect it in images without a package manager: one file for each in var/lib/dpkg/status.d.
 */
export function extract(packages: readonly DebianPackage[], folder: string): void {
  const status = join(folder, "var/lib/dpkg/status.d");
  if (packages.length > 0) mkdirSync(status, { recursive: true });
  for (const { name, file } of packages) {
    const files = execFileSync("dpkg-deb", ["--fsys-tarfile", file], { maxBuffer: 2 ** 30 });
    const excludes = unneeded.map((part) => `--exclude=./usr/share/${part}`);
    const options = ["--keep-directory-symlink", "--no-same-owner", "--preserve-permissions", ...excludes];
    execFileSync("tar", ["--extract", "--directory", folder, ...options], { input: files, stdio: ["pipe", 2, 2] });
    writeFileSync(join(status, name), execFileSync("dpkg-deb", ["--field", file]));
  }
  const documents = join(folder, "usr/share/doc");
  if (packages.length === 0) return;
  for (const entry of readdirSync(documents, { withFileTypes: true, recursive: true })) {
    if (entry.isFile() && entry.name !== "copyright") rmSync(join(entry.parentPath, entry.name), { force: true });
  }
}
