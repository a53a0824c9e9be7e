import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type BuildOptions, build } from "esbuild";
import { laboratoryPrograms } from "../../services/laboratory/src/program-path.ts";

/**
 * Bundles the programs, as the images and the npm package `kpng` contain them: one file for each program, and shared
 * files for code that only some runs need, so that `kpng --version` reads 0.3 MB of 6.
 *
 *     npm run bundle -- [FOLDER [NODE_MODULES]]
 *
 * A bundled program needs only Node.js 24 and that folder (`dist`), starts without reading hundreds of files, and does
 * not hold a TypeScript compiler in memory. NODE_MODULES has koffi for the architecture of the image; default: this
 * machine's.
 *
 * The folder is also an npm package: `npm pack ./dist`. npm leaves its `node_modules` out, and installs koffi with the
 * package, for the architecture of the user's machine.
 */

const traceExporter = "@opentelemetry/exporter-trace-otlp-grpc";

const pageFolder = new URL("../../services/watcher/src/page/assets/", import.meta.url);
const sctpProgram = new URL("../../services/laboratory/src/check/sctp.py", import.meta.url);

/** Options of esbuild for our programs. */
export const bundleOptions = {
  absWorkingDir: fileURLToPath(new URL("../..", import.meta.url)),
  outExtension: { ".js": ".mjs" },
  bundle: true,
  // Dynamically imported modules, such as the trace exporter, stay in separate files.
  splitting: true,
  chunkNames: "parts/[name]-[hash]",
  platform: "node",
  target: "node24",
  format: "esm",
  // The ES module of the exporter loads @grpc/grpc-js by a `require` that esbuild does not see, so the bundle would
  // lack it. The CommonJS variant has a plain `require`.
  alias: {
    [traceExporter]: createRequire(import.meta.resolve("@kpng/process/trace/export-traces.ts")).resolve(traceExporter),
    // For Node.js, this package is a CommonJS module, whose names a dynamic `import` of a bundle does not have.
    yaml: fileURLToPath(new URL("../../node_modules/yaml/browser/index.js", import.meta.url)),
  },
  // Files that the sources read from their folder: those of the status page, and a program of the laboratory in Python.
  define: {
    bundledSctp: JSON.stringify(readFileSync(sctpProgram, "utf8")),
    bundledPage: JSON.stringify(
      Object.fromEntries(
        readdirSync(pageFolder).map((name) => [name, readFileSync(new URL(name, pageFolder), "utf8")]),
      ),
    ),
  },
  // Removes comments: one character outside Latin-1 doubles the memory of the source. Names stay for stack traces.
  minifyWhitespace: true,
  minifySyntax: true,
  legalComments: "none",
  // CommonJS packages call `require` for modules of Node.js, and an ES module has no `require`. The import is renamed
  // because bundled ES modules import `createRequire`, too.
  banner: {
    js: 'import { createRequire as makeRequire } from "node:module";\nconst require = makeRequire(import.meta.url);',
  },
} satisfies BuildOptions;

const mains = {
  kpng: "services/cli/src/main.ts",
  "kpng-callout": "services/backend-callout/src/main.ts",
  "kpng-iptables": "services/backend-iptables/src/main.ts",
  "kpng-nft": "services/backend-nft/src/main.ts",
  "kpng-ipvs": "services/backend-ipvs/src/main.ts",
  "kpng-ebpf": "services/backend-ebpf/src/main.ts",
  "kpng-userspace": "services/backend-userspace/src/main.ts",
  "kpng-json": "services/backend-json/src/main.ts",
  "kpng-plan": "services/backend-plan/src/main.ts",
};

/** Programs that processes of a laboratory run, which a bundle has in the folder `laboratory`. */
export const laboratoryEntries: Readonly<Record<string, string>> = Object.fromEntries(
  laboratoryPrograms.map((file) => [`laboratory/${basename(file, ".ts")}`, `services/laboratory/src/${file}`]),
);

/**
 * Writes the programs to `folder`. Beside them are koffi, whose native module cannot be bundled, a list of all npm
 * packages inside, with their license texts, and the manifest and README of the package `kpng`.
 */
async function bundlePrograms(folder: string, nodeModules: string): Promise<void> {
  // Otherwise the package would contain the files of earlier bundles, whose names have other hashes.
  for (const name of contents) rmSync(join(folder, name), { recursive: true, force: true });
  const parts = Object.fromEntries(Object.entries(mains).map(([name, file]) => [`parts/${name}`, file]));
  const entryPoints = { ...parts, ...laboratoryEntries };
  const { metafile } = await build({ ...bundleOptions, entryPoints, outdir: folder, metafile: true });
  for (const name of Object.keys(mains)) writeFileSync(join(folder, `${name}.mjs`), launcher(name), { mode: 0o755 });
  writeManifest(folder, readManifest(join(nodeModules, "koffi")).version);
  const isNeeded = (from: string): boolean => !/\/koffi\/(vendor|lib|doc)$|\.(cc|hh|inc|S|asm)$/.test(from);
  const koffi = ["koffi", ...readdirSync(join(nodeModules, "@koromix")).map((name) => `@koromix/${name}`)];
  for (const name of koffi)
    cpSync(join(nodeModules, name), join(folder, "node_modules", name), { recursive: true, filter: isNeeded });
  const bundled = Object.keys(metafile.inputs).flatMap(
    (path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? [],
  );
  const packages = [
    ...[...new Set(bundled)].map((path) => join(bundleOptions.absWorkingDir, path)),
    ...koffi.map((name) => join(nodeModules, name)),
  ];
  writeFileSync(join(folder, "npm.spdx.json"), `${JSON.stringify(listPackages(packages), undefined, 1)}\n`);
  for (const path of packages) {
    for (const file of readdirSync(path).filter((each) => /^(licen[cs]e|notice|copying)/i.test(each)))
      cpSync(join(path, file), join(folder, "licenses", readManifest(path).name, file));
  }
}

/** Folders that a bundle consists of, besides `node_modules`. */
const contents = ["laboratory", "licenses", "parts"];

/**
 * Returns the file that starts a program. It is plain JavaScript and imports nothing before it has checked the version:
 * an older Node.js would only report a syntax error, or that one of its own modules lacks an export.
 */
function launcher(name: string): string {
  const advice = `${name} needs Node.js 24 or newer, and this is Node.js \${process.versions.node}: npm install node@24 beside it, and use npx`;
  return `#!/usr/bin/env node
if (Number.parseInt(process.versions.node) >= 24) await import("./parts/${name}.mjs");
else {
  process.stderr.write(\`${advice}\\n\`);
  process.exitCode = 1;
}
`;
}

/** Makes the folder the npm package `kpng`, with the version of the command line. */
function writeManifest(folder: string, koffi: string): void {
  const cli = join(bundleOptions.absWorkingDir, "services/cli");
  const { version, license, engines } = JSON.parse(readFileSync(join(cli, "package.json"), "utf8"));
  const { description } = readManifest(bundleOptions.absWorkingDir);
  const manifest = {
    ...{ name: "kpng", version, description, license, type: "module", engines },
    bin: Object.fromEntries(Object.keys(mains).map((name) => [name, `${name}.mjs`])),
    files: ["*.mjs", "npm.spdx.json", ...contents],
    dependencies: { koffi },
  };
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
  cpSync(join(cli, "README.md"), join(folder, "README.md"));
  cpSync(join(bundleOptions.absWorkingDir, "LICENSE"), join(folder, "LICENSE"));
}

/** Returns a list of npm packages in the format that scanners read: SPDX 2.3. */
function listPackages(folders: readonly string[]): object {
  const manifests = folders.map(readManifest).sort((a, b) => (a.name < b.name ? -1 : 1));
  return {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: "npm packages of kpng",
    documentNamespace: "https://spdx.org/spdxdocs/kpng-npm",
    creationInfo: { created: "1970-01-01T00:00:00Z", creators: ["Tool: kpng"] },
    packages: manifests.map(({ name, version, license }, index) => ({
      SPDXID: `SPDXRef-${index}`,
      name,
      versionInfo: version,
      downloadLocation: "NOASSERTION",
      licenseDeclared: license,
      externalRefs: [
        {
          referenceCategory: "PACKAGE-MANAGER",
          referenceType: "purl",
          referenceLocator: `pkg:npm/${name.replace("@", "%40")}@${version}`,
        },
      ],
    })),
  };
}

function readManifest(folder: string): Readonly<Record<"name" | "version" | "license" | "description", string>> {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

if (import.meta.main) {
  const [folder = "dist", nodeModules = join(bundleOptions.absWorkingDir, "node_modules")] = process.argv.slice(2);
  await bundlePrograms(resolve(folder), resolve(nodeModules));
}
