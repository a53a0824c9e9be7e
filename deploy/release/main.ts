import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { architectures, makeExecutable, makeKrewManifest } from "./executables.ts";
import {
  makeChart,
  makeGoModule,
  makeImages,
  makeManifests,
  makeNotes,
  makeNpmPackages,
  makePythonPackage,
  removeStage,
} from "./parts.ts";
import { writeSbom } from "./sbom.ts";
import { makeStage, repository } from "./stage.ts";
import { digestOf, type Release, run, say } from "./tools.ts";

// Writes a release, from the sources of the last commit: docs/guides/release.md.
//
//     npm run release -- VERSION [FOLDER] [--allow-dirty] [--images]

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "allow-dirty": { type: "boolean" }, images: { type: "boolean" } },
});
const [version = "", folder = `dist/release/${version}`] = positionals;

/** Returns the reason why no release can be made; undefined if it can. */
function whyNot(): string | undefined {
  if (!/^\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$/.test(version) || positionals.length > 2)
    return "usage: npm run release -- VERSION [FOLDER] [--allow-dirty] [--images]";
  if (existsSync(folder) && readdirSync(folder).length > 0) return `the folder ${folder} is not empty`;
  const changes = run(["git", "status", "--porcelain"], { cwd: repository });
  if (changes !== "" && values["allow-dirty"] !== true)
    return `there are changes without a commit; --allow-dirty includes them:\n${changes.trimEnd()}`;
  return undefined;
}

function makeRelease(): void {
  // Archives of npm and of Python contain the modes of files that are made here.
  process.umask(0o022);
  const [commit = "", time = ""] = run(["git", "log", "-1", "--format=%H %ct"], { cwd: repository }).trim().split(" ");
  const out = resolve(folder);
  mkdirSync(out, { recursive: true });
  const epoch = Number(process.env.SOURCE_DATE_EPOCH ?? time);
  const release: Release = { version, commit, epoch, out, stage: makeStage(version) };
  const step = <Result>(name: string, make: () => Result): Result => {
    const startMs = performance.now();
    const result = make();
    say(`${name} (${((performance.now() - startMs) / 1_000).toFixed()} s)`);
    return result;
  };
  try {
    if (values.images === true) step("images", () => makeImages(release));
    step("notes", () => makeNotes(release));
    step("manifests", () => makeManifests(release));
    step("chart", () => makeChart(release));
    step("Go module", () => makeGoModule(release));
    step("Python package", () => attempt(() => makePythonPackage(release)));
    const bundle = step("npm packages", () => makeNpmPackages(release));
    for (const architecture of architectures)
      step(`executable for linux-${architecture}`, () => makeExecutable(release, bundle, architecture));
    makeKrewManifest(release);
    step("list of packages", () => writeSbom(release, bundle));
    const names = readdirSync(out).toSorted();
    const sums = names.map((name) => `${digestOf(join(out, name), "sha256")}  ${name}\n`);
    writeFileSync(join(out, "SHA256SUMS"), sums.join(""));
  } finally {
    removeStage(release);
  }
  say(`${out} is complete`);
}

/** A machine without Python, venv or its registry makes a release without the Python package. */
function attempt(make: () => void): void {
  try {
    make();
  } catch (error) {
    say(`WITHOUT the Python package: ${error instanceof Error ? error.message : String(error)}`);
  }
}

const reason = whyNot();
if (reason === undefined) makeRelease();
else {
  process.stderr.write(`Error: ${reason}\n`);
  process.exitCode = 2;
}
