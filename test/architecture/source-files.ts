import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

/** One file of the repository. */
interface SourceFile {
  /** Path from the root of the repository. */
  readonly file: string;
  readonly text: string;
}

/** One file imports another one, or a package. */
export interface Import {
  readonly file: string;
  /** Specifier as it is written. */
  readonly specifier: string;
  /** Path of the imported file from the root of the repository; undefined for packages of others. */
  readonly target: string | undefined;
}

/**
 * Reads the files that match the patterns, sorted by path.
 *
 * Leaves out generated code, installed packages and captures of other programs.
 */
export function readSourceFiles(...patterns: readonly string[]): SourceFile[] {
  const isForeign = (path: string): boolean =>
    /(^|\/)(node_modules|dist|gen|\.git)(\/|$)/.test(path) || path.startsWith("test/fixtures/");
  const files = globSync([...patterns]).filter((file) => !isForeign(file));
  return files.sort().map((file) => ({ file, text: readFileSync(file, "utf8") }));
}

/** Whether a file is a test or supports tests. */
export function isTest(file: string): boolean {
  return file.endsWith(".test.ts") || file.includes("/testing/");
}

/** Whether a file of a package is neither a test nor support of tests. */
export function isProduction(file: string): boolean {
  return /^services\/[^/]+\/src\//.test(file) && !isTest(file);
}

/** Static and dynamic imports and re-exports of a file, types included. */
export function importsOf({ file, text }: SourceFile): Import[] {
  const matches = text.matchAll(/^(?:import|export)\b[^;]*?from "([^"]+)";|^import "([^"]+)";|\bimport\("([^"]+)"\)/gm);
  return [...matches].map((match) => {
    const specifier = match[1] ?? match[2] ?? match[3] ?? "";
    return { file, specifier, target: resolveImport(file, specifier) };
  });
}

/** Returns the path of an imported file of the repository, from its root; undefined for packages of others. */
function resolveImport(file: string, specifier: string): string | undefined {
  if (specifier.startsWith(".")) return normalize(join(dirname(file), specifier));
  const [, name, path] = /^@kpng\/([^/]+)(?:\/(.+))?$/.exec(specifier) ?? [];
  return name === undefined ? undefined : `services/${name}/src/${path ?? "index.ts"}`;
}
