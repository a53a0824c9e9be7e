import type { SourceFile } from "./source-files.ts";

/**
 * Returns a line for each function that returns a promise without waiting for it, although it has declared a resource with `using`.
 *
 * The resource is disposed of before the caller gets the promise: `return settle()` stops the program that `settle`
 * observes, and `return await settle()` does not. Only functions of the same file that return a promise are known.
 */
export function findReturnedPromises({ file, text }: SourceFile): readonly string[] {
  const asyncNames = new Set([...text.matchAll(asyncFunction)].map((match) => match[1] ?? match[2]));
  const findings: string[] = [];
  /** Indentation of the blocks with a resource that are open. */
  let blocks: number[] = [];
  for (const [at, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const indentation = line.search(/\S/);
    blocks = blocks.filter((block) => block <= indentation);
    if (/^\s*(?:await )?using \w+ = /.test(line)) blocks.push(indentation);
    const name = /^\s*(?:.*\) )?return (\w+)\(/.exec(line)?.[1];
    if (blocks.length === 0 || !asyncNames.has(name)) continue;
    findings.push(`${file}:${at + 1}: wants "return await ${name}(": a resource is disposed of before`);
  }
  return findings;
}

/** Name of a function that is async or says that it returns a promise. */
const asyncFunction =
  /^(?:export )?(?:async function\*? (\w+)|(?:function|const) (\w+)(?=(?:[^;{]|\{[^}]*\})*?(?:\): Promise<|= async )))/gm;
