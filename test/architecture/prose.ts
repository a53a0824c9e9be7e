import { readSourceFiles, type SourceFile } from "./source-files.ts";

/** All files of the repository in which people write prose. */
export function readProse(): SourceFile[] {
  const endings = "{ts,mjs,md,proto,yaml,yml,go,py}";
  // The list of phrases and its tests contain the phrases.
  return readSourceFiles(
    `*.${endings}`,
    `.github/**/*.${endings}`,
    `{docs,deploy,examples,proto,services,test}/**/*.${endings}`,
  ).filter(({ file }) => !/^test\/architecture\/phrases\.(test\.)?ts$/.test(file));
}
