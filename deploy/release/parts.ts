import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { architectures, fetchKoffi } from "./executables.ts";
import { repository } from "./stage.ts";
import { archive, type Release, run } from "./tools.ts";

/**
 * Writes the npm packages: the bundle, and the libraries that can be packed. Returns the folder of the bundle, whose
 * list of packages contains koffi for each architecture of the executables, so it is the same on any machine.
 */
export function makeNpmPackages({ stage, out }: Release): string {
  const modules = join(stage, "koffi");
  cpSync(join(repository, "node_modules/koffi"), join(modules, "koffi"), { recursive: true });
  for (const architecture of architectures) {
    cpSync(fetchKoffi(architecture), join(modules, `@koromix/koffi-linux-${architecture}`), { recursive: true });
  }
  const bundle = join(stage, "dist");
  run([process.execPath, "deploy/images/bundle.ts", bundle, modules], { cwd: stage });
  const services = readdirSync(join(stage, "services")).map((name) => join(stage, "services", name));
  const isLibrary = (folder: string): boolean =>
    JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).scripts?.prepack !== undefined;
  for (const folder of [bundle, ...services.filter(isLibrary)])
    run(["npm", "pack", "--silent", `--pack-destination=${out}`], { cwd: folder });
  return bundle;
}

/** Returns what `install-NAME.yaml` of a backend consists of, relative to deploy/kubernetes. */
function resourcesOf(backend: string): readonly string[] {
  const overlay = `overlays/replace-kube-proxy/${backend}`;
  return existsSync(join(repository, "deploy/kubernetes", overlay)) ? [overlay] : ["watcher", `backends/${backend}`];
}

/**
 * Writes the manifests: one file for each backend, and the kustomizations with the alert rules and the dashboard.
 * Needs kubectl.
 */
export function makeManifests(release: Release): void {
  const { stage, out, version } = release;
  const kubernetes = join(stage, "deploy/kubernetes");
  const backends = readdirSync(join(kubernetes, "backends")).filter((name) => name !== "base" && name !== "kernel");
  for (const backend of backends) {
    const folder = join(stage, "install", backend);
    mkdirSync(folder, { recursive: true });
    const resources = resourcesOf(backend).map((path) => `../../deploy/kubernetes/${path}`);
    writeFileSync(join(folder, "kustomization.yaml"), JSON.stringify({ resources }));
    const text = run(["kubectl", "kustomize", folder]);
    writeFileSync(join(out, `install-${backend}.yaml`), `${introduction(backend, version)}${text}`);
  }
  const name = `kpng-kubernetes-${version}`;
  for (const folder of ["kubernetes", "monitoring"])
    cpSync(join(stage, "deploy", folder), join(stage, name, folder), { recursive: true });
  archive(release, join(stage, name), join(out, `${name}.tar.gz`));
}

/** Writes the Helm chart. Its name is not that of `helm package`, which the npm package has. */
export function makeChart(release: Release): void {
  const folder = join(release.stage, "chart/kpng");
  cpSync(join(release.stage, "deploy/helm/kpng"), folder, { recursive: true });
  archive(release, folder, join(release.out, `kpng-chart-${release.version}.tgz`));
}

function introduction(backend: string, version: string): string {
  return `# kpng ${version}: the watchers and kpng-${backend}, from ${resourcesOf(backend).join(" and ")} in deploy/kubernetes.
# Before it is applied, the cluster needs nodes with the label node-role.kubernetes.io/kpng-watcher, the ConfigMaps kpng
# and kpng-ca, and the Secret kpng-watcher-tls: steps 2 to 4 of docs/install.md. The images have no registry:
#
#   sed 's|image: kpng-|image: registry.example/kpng/kpng-|' install-${backend}.yaml | kubectl apply --server-side --filename -
`;
}

/** Version of the build backend that makes the Python package; another one may write other bytes. */
const setuptools = "setuptools==83.0.0";

/** Writes the Go module. The name of the folder in the archive is for `replace` in a go.mod. */
export function makeGoModule(release: Release): void {
  const name = `kpng-go-${release.version}`;
  cpSync(join(release.stage, "clients/go"), join(release.stage, name), { recursive: true });
  cpSync(join(release.stage, "LICENSE"), join(release.stage, name, "LICENSE"));
  archive(release, join(release.stage, name), join(release.out, `${name}.tar.gz`));
}

/** Writes the Python package, as a wheel and as sources. Errors: throws if Python, venv or pip fails. */
export function makePythonPackage(release: Release): void {
  const { stage, out, epoch } = release;
  const [source, work, venv] = [join(stage, "clients/python"), join(stage, "python"), join(stage, "venv")];
  cpSync(join(stage, "LICENSE"), join(source, "LICENSE"));
  mkdirSync(work);
  run(["python3", "-m", "venv", venv]);
  const python = join(venv, "bin/python");
  run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", setuptools]);
  const build = `import setuptools.build_meta as backend; backend.build_sdist("${work}"); backend.build_wheel("${work}")`;
  run(["env", `SOURCE_DATE_EPOCH=${epoch}`, python, "-c", build], { cwd: source });
  const names = readdirSync(work);
  for (const name of names.filter((each) => each.endsWith(".whl"))) cpSync(join(work, name), join(out, name));
  // setuptools writes the time of the build and the user's name.
  for (const name of names.filter((each) => each.endsWith(".tar.gz"))) {
    run(["tar", "--extract", "--gzip", `--file=${join(work, name)}`, `--directory=${work}`]);
    archive(release, join(work, basename(name, ".tar.gz")), join(out, name));
  }
}

/**
 * Writes the images as OCI archives, each with all architectures, under the names that the manifests ask for. NODE_IMAGE
 * is an argument of the Dockerfile, or `oci-layout://FOLDER:TAG` for a machine without a registry.
 */
export function makeImages({ stage, out, version, commit, epoch }: Release): void {
  const path = "deploy/images/Dockerfile";
  const dockerfile = readFileSync(join(stage, path), "utf8");
  const targets = dockerfile.matchAll(/^FROM base AS (\w+)$/gm);
  const values = [`VERSION=${version}`, `REVISION=${commit}`, `SOURCE_DATE_EPOCH=${epoch}`];
  const args = ["--platform=linux/amd64,linux/arm64", "--provenance=false", `--file=${path}`];
  const node = process.env.NODE_IMAGE;
  const [, usual = ""] = /^ARG NODE_IMAGE=(.+)$/m.exec(dockerfile) ?? [];
  if (node?.startsWith("oci-layout://") === true) args.push(`--build-context=${usual}=${node}`);
  else if (node !== undefined) values.push(`NODE_IMAGE=${node}`);
  args.push(...values.map((value) => `--build-arg=${value}`));
  for (const [, target = ""] of targets) {
    const [name, file] = [`kpng-${target}:${version}`, join(out, `kpng-${target}-${version}.oci.tar`)];
    const output = `--output=type=oci,name=${name},dest=${file},rewrite-timestamp=true`;
    run(["docker", "buildx", "build", ...args, `--target=${target}`, output, "."], { cwd: stage });
  }
}

/**
 * Writes the release notes: the section of the changelog that has the version as its heading, otherwise that of the
 * unreleased changes. Errors: throws if there is neither.
 */
export function makeNotes({ stage, out, version }: Release): void {
  const sections = readFileSync(join(stage, "CHANGELOG.md"), "utf8").split(/^## /m);
  const find = (title: string): string | undefined => sections.find((each) => each.split(/\s/)[0] === title);
  const section = find(version) ?? find("Unreleased");
  if (section === undefined) throw new Error(`CHANGELOG.md has neither a section ${version} nor Unreleased`);
  const body = section.slice(section.indexOf("\n")).trim();
  writeFileSync(join(out, "RELEASE_NOTES.md"), `# kpng ${version}\n\n${body}\n`);
  cpSync(join(stage, "LICENSE"), join(out, "LICENSE"));
}

/** Removes the copy of the sources and everything that was made in it. */
export function removeStage({ stage }: Release): void {
  rmSync(stage, { recursive: true, force: true });
}
