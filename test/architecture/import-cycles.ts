import type { Import } from "./source-files.ts";

/**
 * Returns the import cycles: each as the files on it, every file importing the next one and the last one the first.
 *
 * At most one cycle for each group of files that import each other; imports of types count. O(files + imports).
 */
export function findImportCycles(imports: readonly Import[]): string[][] {
  const targetsByFile = new Map<string, string[]>();
  for (const { file, target } of imports) {
    const targets = targetsByFile.get(file) ?? [];
    if (target !== undefined) targets.push(target);
    targetsByFile.set(file, targets);
  }
  const cycles: string[][] = [];
  const finished = new Set<string>();
  const path: string[] = [];
  const visit = (file: string): void => {
    if (finished.has(file)) return;
    const start = path.indexOf(file);
    if (start >= 0) {
      cycles.push(path.slice(start));
      return;
    }
    path.push(file);
    for (const target of targetsByFile.get(file) ?? []) visit(target);
    path.pop();
    finished.add(file);
  };
  for (const file of targetsByFile.keys()) visit(file);
  return cycles;
}
