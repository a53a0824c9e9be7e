import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { run } from "./tools.ts";

export const repository = resolve(import.meta.dirname, "../..");

/** What the parts of a release are made of, and the build context of the images. */
const sources = [
  ...["CHANGELOG.md", "LICENSE", ".npmrc", "package.json", "package-lock.json", "tsconfig.json"],
  ...["clients", "deploy", "services"],
];

/**
 * Copies the sources to `dist/stage`, gives them the version of the release, and returns the path.
 *
 * The folder is in the repository, because bundles contain hashes of paths relative to node_modules: they must be the
 * same in any clone. Installed packages are linked.
 */
export function makeStage(version: string): string {
  const stage = join(repository, "dist/stage");
  rmSync(stage, { recursive: true, force: true });
  const listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", ...sources], {
    cwd: repository,
  });
  for (const path of listed.split("\0").filter((each) => each !== "" && existsSync(join(repository, each)))) {
    const [from, to] = [join(repository, path), join(stage, path)];
    mkdirSync(dirname(to), { recursive: true });
    // Links of the chart lead to files of the manifests, whose contents its archive has.
    copyFileSync(from, to);
    // Modes of a clone depend on the user's umask, and the wheel contains them.
    chmodSync(to, (statSync(from).mode & 0o100) === 0 ? 0o644 : 0o755);
  }
  linkPackages(stage);
  setVersions(stage, version);
  return stage;
}

/** Links node_modules, with our own packages from the stage. */
function linkPackages(stage: string): void {
  const [installed, linked] = [join(repository, "node_modules"), join(stage, "node_modules")];
  mkdirSync(join(linked, "@kpng"), { recursive: true });
  for (const name of readdirSync(installed).filter((each) => each !== "@kpng" && each !== ".cache"))
    symlinkSync(join(installed, name), join(linked, name));
  for (const name of readdirSync(join(stage, "services")))
    symlinkSync(`../../services/${name}`, join(linked, "@kpng", name));
}

interface Manifest {
  version?: string;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
}

/** Writes the version to each place that names it. Errors: throws if a file no longer names the present version. */
function setVersions(stage: string, version: string): void {
  const present: string = JSON.parse(readFileSync(join(stage, "package.json"), "utf8")).version;
  const isOurs = (name: string): boolean => name === "" || name.startsWith("services/");
  const update = (manifest: Manifest): void => {
    if (manifest.version === present) manifest.version = version;
    for (const list of [manifest.dependencies ?? {}, manifest.devDependencies ?? {}])
      for (const name of Object.keys(list).filter((each) => each.startsWith("@kpng/"))) list[name] = version;
  };
  const rewrite = (path: string, change: (text: string) => string): void => {
    const text = readFileSync(join(stage, path), "utf8");
    const changed = change(text);
    if (changed === text && version !== present) throw new Error(`${path} does not name version ${present}`);
    writeFileSync(join(stage, path), changed);
  };
  const inJson = (change: (content: Record<string, unknown>) => void) => (text: string) => {
    const content = JSON.parse(text);
    change(content);
    return `${JSON.stringify(content, undefined, 2)}\n`;
  };
  const services = readdirSync(join(stage, "services")).map((name) => `services/${name}/package.json`);
  for (const path of ["package.json", ...services]) rewrite(path, inJson(update));
  // npm ci, in the images, compares the lock file with the manifests.
  const updateLock = (lock: Record<string, unknown>): void => {
    update(lock);
    for (const [name, manifest] of Object.entries(lock.packages ?? {})) if (isOurs(name)) update(manifest);
  };
  rewrite("package-lock.json", inJson(updateLock));
  rewrite("clients/python/pyproject.toml", (text) => text.replace(`version = "${present}"`, `version = "${version}"`));
  rewrite("deploy/helm/kpng/Chart.yaml", (text) => text.replaceAll(/(?<=^(?:appVersion|version): ).+$/gm, version));
  const isTag = new RegExp(`(kpng-[a-z]+:|newTag: )${RegExp.escape(present)}$`, "gm");
  for (const path of findManifests(stage).filter((each) => readFileSync(join(stage, each), "utf8").search(isTag) >= 0))
    rewrite(path, (text) => text.replaceAll(isTag, `$1${version}`));
}

/** Returns the paths of all Kubernetes manifests, relative to the stage. */
function findManifests(stage: string): readonly string[] {
  const folder = "deploy/kubernetes";
  const names = readdirSync(join(stage, folder), { recursive: true, encoding: "utf8" });
  return names.filter((name) => name.endsWith(".yaml")).map((name) => join(folder, name));
}
