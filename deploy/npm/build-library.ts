import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { build } from "esbuild";

/**
 * Builds the files of a package that is published on npm.
 *
 * Node.js does not run TypeScript below node_modules. `dist/index.js` is therefore a bundle of `src/index.ts`, which
 * contains the packages of this repository and imports those of npm, and `dist/types/` holds the declarations of all
 * exports. An export `./NAME` is built from `src/NAME/index.ts` in the same way. The bundled packages are
 * devDependencies: users of the published package do not install them.
 *
 * Usage: `node deploy/npm/build-library.ts services/backend-kit`; `npm pack` runs it as the script `prepack`.
 */

interface Manifest {
  readonly name: string;
  /** Files of each export; a string is an export of sources, which exist already. */
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly dependencies?: Readonly<Record<string, string>>;
}

const repository = resolve(import.meta.dirname, "../..");
const services = join(repository, "services");
const internalScope = "@kpng/";

const [folderArgument] = process.argv.slice(2);
if (folderArgument === undefined) throw new Error("usage: node deploy/npm/build-library.ts FOLDER");
await buildLibrary(realpathSync(resolve(folderArgument)));

async function buildLibrary(folder: string): Promise<void> {
  const manifest: Manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const built = Object.entries(manifest.exports).filter(([, files]) => typeof files !== "string");
  const entries = Object.fromEntries(
    built.map(([name]) => [name === "." ? "index" : basename(name), join(folder, "src", name, "index.ts")]),
  );
  const dist = join(folder, "dist");
  const dependencies = Object.keys(manifest.dependencies ?? {});
  const internal = dependencies.filter((name) => name.startsWith(internalScope));
  if (internal.length > 0) {
    throw new Error(`${manifest.name} would install ${internal.join(", ")} from npm: make them devDependencies`);
  }
  rmSync(dist, { recursive: true, force: true });
  await bundle(manifest, entries, dist, dependencies);
  emitDeclarations(folder, Object.values(entries), join(dist, "types"));
  for (const path of built.flatMap(([, files]) => Object.values(files))) {
    if (!existsSync(join(folder, path))) throw new Error(`${manifest.name} exports ${path}, which was not built`);
  }
}

async function bundle(
  manifest: Manifest,
  entries: Readonly<Record<string, string>>,
  dist: string,
  dependencies: string[],
): Promise<void> {
  const result = await build({
    entryPoints: { ...entries },
    outdir: dist,
    bundle: true,
    // Dynamic imports stay in separate files: in one file, the packages that they need would be loaded at the start.
    splitting: true,
    platform: "node",
    target: "node24",
    format: "esm",
    sourcemap: true,
    external: dependencies.flatMap((name) => [name, `${name}/*`]),
    metafile: true,
    logLevel: "warning",
  });
  const foreign = Object.keys(result.metafile.inputs).filter((path) => path.includes("node_modules"));
  if (foreign.length > 0) {
    throw new Error(
      `${manifest.name} bundles packages that are not in its dependencies: ${foreign.slice(0, 3).join(", ")}`,
    );
  }
}

/**
 * Writes declarations of the entries and of all files of this repository that they import, as `PACKAGE/src/FILE.d.ts`.
 */
function emitDeclarations(source: string, entries: readonly string[], folder: string): void {
  const config = join(source, "tsconfig.declarations.json");
  const compilerOptions = {
    declaration: true,
    emitDeclarationOnly: true,
    noEmit: false,
    rootDir: services,
    outDir: folder,
    // Resolved through node_modules, our packages would count as external, and tsc writes no declarations for those.
    paths: Object.fromEntries(
      readdirSync(services).map((name) => [`${internalScope}${name}/*`, [join(services, name, "src/*")]]),
    ),
  };
  const content = { extends: join(repository, "tsconfig.json"), compilerOptions, include: [], files: entries };
  writeFileSync(config, JSON.stringify(content));
  try {
    execFileSync(join(repository, "node_modules/.bin/tsc"), ["-p", config], { stdio: "inherit" });
  } finally {
    rmSync(config);
  }
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    if (name.endsWith(".d.ts")) rewriteSpecifiers(join(folder, name), folder);
  }
}

/** Changes imports of `.ts` files to `.js`, the form in which compilers of users resolve declarations. */
function rewriteSpecifiers(path: string, folder: string): void {
  const text = readFileSync(path, "utf8");
  const rewritten = text.replaceAll(/(from |import\()"([^"]+)\.ts"/g, (_all, keyword: string, specifier: string) => {
    return `${keyword}"${rewriteSpecifier(specifier, path, folder)}.js"`;
  });
  writeFileSync(path, rewritten);
}

function rewriteSpecifier(specifier: string, path: string, folder: string): string {
  if (!specifier.startsWith(internalScope)) return specifier;
  const [packageName = "", ...rest] = specifier.slice(internalScope.length).split("/");
  const target = relative(dirname(path), join(folder, packageName, "src", ...rest))
    .split(sep)
    .join("/");
  return target.startsWith(".") ? target : `./${target}`;
}
