import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { bundleOptions } from "./bundle-options.ts";
import type { Architecture, DebianPackage } from "./debian.ts";

/**
 * Bill of materials of the images, as CycloneDX 1.6. Each layer lists its own components in
 * `/usr/share/kpng/sbom/LAYER.cdx.json`, where scanners find it; `build.ts` writes one list for an image beside it.
 */

/** A CycloneDX component. */
export interface Component {
  readonly type: "library" | "application";
  readonly name: string;
  readonly version: string;
  /** Package URL, e.g. `pkg:deb/debian/iptables@1.8.9-2?arch=amd64`. */
  readonly purl: string;
  readonly licenses?: readonly [{ readonly expression: string }];
}

/** Node.js itself. The build runs on the version that the images contain. */
export const nodeComponent: Component = {
  type: "application",
  name: "node",
  version: process.versions.node,
  purl: `pkg:generic/node@${process.versions.node}`,
  licenses: [{ expression: "MIT" }],
};

export function debianComponent({ name, version }: DebianPackage, architecture: Architecture): Component {
  const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${architecture}`;
  return { type: "library", name, version, purl };
}

/** Returns the components for npm packages in `folders`, and copies their license texts to `layer`. */
export function npmComponents(folders: readonly string[], layer: string): readonly Component[] {
  return folders.map((relative) => {
    const folder = resolve(bundleOptions.absWorkingDir, relative);
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Readonly<
      Record<"name" | "version" | "license", string>
    >;
    for (const file of readdirSync(folder).filter((each) => /^(licen[cs]e|notice|copying)/i.test(each)))
      cpSync(join(folder, file), join(layer, "usr/share/doc/npm", `${name}-${version}`, file));
    const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
    return { type: "library", name, version, purl, licenses: [{ expression: license }] };
  });
}

export function writeSbom(file: string, components: readonly Component[]): void {
  const bom = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: { type: "application", name: "kpng", version: packageJson.version } },
    components,
  };
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(bom, undefined, 1)}\n`);
}

/** Returns the components of all bills of materials below `layer`. */
export function readSbom(layer: string): readonly Component[] {
  const folder = join(layer, "usr/share/kpng/sbom");
  return readdirSync(folder).flatMap(
    (file) => (JSON.parse(readFileSync(join(folder, file), "utf8")) as { components: Component[] }).components,
  );
}
