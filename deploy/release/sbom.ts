import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { digestOf, type Release } from "./tools.ts";

/** The parts of a package in SPDX 2.3 that this file reads. */
interface SpdxPackage {
  readonly SPDXID: string;
  readonly name: string;
}

/**
 * Writes `kpng-VERSION.spdx.json`, in the format SPDX 2.3: each file of the release with its digests, and the packages
 * that it contains or depends on. The npm packages are those of the bundle's own list (deploy/images/bundle.ts).
 */
export function writeSbom({ out, version, epoch, stage }: Release, bundle: string): void {
  const title = `kpng-${version}`;
  const own = describe("generic", "kpng", version, "Apache-2.0");
  const node = describe("generic", "node", process.versions.node, "MIT");
  const npm: readonly SpdxPackage[] = JSON.parse(readFileSync(join(bundle, "npm.spdx.json"), "utf8")).packages;
  const go = dependenciesOf(join(stage, "clients/go/go.mod"), /^\t(?<name>\S+) v(?<version>\S+)/gm, "golang");
  const python = dependenciesOf(
    join(stage, "clients/python/pyproject.toml"),
    /(?<=^dependencies = .*)"(?<name>[a-z]+)>=/gm,
    "pypi",
  );
  const koffi = /^@koromix\/koffi-linux-(.+)$/;
  const contentsOf = (file: string): readonly SpdxPackage[] => {
    if (file === `${title}.tgz`) return npm.filter(({ name }) => name !== "koffi" && !koffi.test(name));
    const architecture = new RegExp(`^${title}-linux-(.+)\\.tar\\.gz$`).exec(file)?.[1];
    if (architecture === undefined) return [];
    return [node, ...npm.filter(({ name }) => (koffi.exec(name)?.[1] ?? architecture) === architecture)];
  };
  const dependenciesOfFile = (file: string): readonly SpdxPackage[] => {
    if (file.startsWith("kpng-go-")) return go;
    if (file.endsWith(".whl")) return python;
    return file === `${title}.tgz` ? npm.filter(({ name }) => name === "koffi") : [];
  };
  const files = readdirSync(out).toSorted();
  const relationships = files.flatMap((file) => [
    relate(own.SPDXID, "CONTAINS", idOf(file)),
    ...contentsOf(file).map(({ SPDXID }) => relate(idOf(file), "CONTAINS", SPDXID)),
    ...dependenciesOfFile(file).map(({ SPDXID }) => relate(idOf(file), "DEPENDS_ON", SPDXID)),
  ]);
  const document = {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: title,
    documentNamespace: `https://spdx.org/spdxdocs/${title}-${epoch}`,
    creationInfo: {
      created: new Date(epoch * 1_000).toISOString().replace(".000Z", "Z"),
      creators: ["Tool: kpng deploy/release"],
    },
    packages: [own, node, ...npm, ...go, ...python],
    files: files.map((file) => describeFile(out, file)),
    relationships: [relate("SPDXRef-DOCUMENT", "DESCRIBES", own.SPDXID), ...relationships],
  };
  writeFileSync(join(out, `${title}.spdx.json`), `${JSON.stringify(document, undefined, 1)}\n`);
}

/** Returns the packages that a file names. A package without a version has a range there. */
function dependenciesOf(path: string, pattern: RegExp, type: string): readonly SpdxPackage[] {
  const found = readFileSync(path, "utf8").matchAll(pattern);
  return [...found].map(({ groups }) => describe(type, groups?.name ?? "", groups?.version, "NOASSERTION"));
}

/** Returns a package; `type` is that of its package URL. */
function describe(type: string, name: string, version: string | undefined, license: string): SpdxPackage {
  const locator = `pkg:${type}/${name}${version === undefined ? "" : `@${version}`}`;
  const result = {
    SPDXID: idOf(`${type}-${name}`),
    name,
    ...(version === undefined ? {} : { versionInfo: version }),
    downloadLocation: "NOASSERTION",
    filesAnalyzed: false,
    licenseDeclared: license,
    externalRefs: [{ referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: locator }],
  };
  return result;
}

function describeFile(out: string, file: string): object {
  const checksums = (["sha1", "sha256"] as const).map((algorithm) => ({
    algorithm: algorithm.toUpperCase(),
    checksumValue: digestOf(join(out, file), algorithm),
  }));
  return { SPDXID: idOf(file), fileName: `./${file}`, checksums, copyrightText: "NOASSERTION" };
}

function idOf(text: string): string {
  return `SPDXRef-${text.replaceAll(/[^A-Za-z0-9.-]/g, "-")}`;
}

function relate(from: string, relationshipType: string, to: string): object {
  return { spdxElementId: from, relationshipType, relatedSpdxElement: to };
}
