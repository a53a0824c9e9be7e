import { dirname } from "node:path";
import type { Finding } from "./finding.ts";
import { isProduction, type SourceFile } from "./source-files.ts";

/** Most production files in a folder, folders inside it not counted. */
const maxFiles = 25;

/** Most lines in a production file. The aim is 200; beyond this limit a file certainly holds several ideas. */
const maxLines = 400;

/** Returns the folders with too many production files. */
export function findLargeFolders(files: readonly SourceFile[]): Finding[] {
  const counts = new Map<string, number>();
  for (const { file } of files) {
    if (isProduction(file)) counts.set(dirname(file), (counts.get(dirname(file)) ?? 0) + 1);
  }
  return [...counts]
    .filter(([, count]) => count > maxFiles)
    .map(([folder, count]) => ({ file: folder, problem: `has ${count} source files, more than ${maxFiles}` }));
}

/** Returns the production files with too many lines. */
export function findLargeFiles(files: readonly SourceFile[]): Finding[] {
  return files.flatMap(({ file, text }) => {
    const lines = text.split("\n").length - 1;
    if (!isProduction(file) || lines <= maxLines) return [];
    return [{ file, problem: `has ${lines} lines, more than ${maxLines}` }];
  });
}
