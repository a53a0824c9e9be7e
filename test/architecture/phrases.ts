import type { Finding } from "./finding.ts";
import { splitPassages } from "./passages.ts";
import type { SourceFile } from "./source-files.ts";

interface Phrase {
  readonly pattern: RegExp;
  /** What to write in its place. */
  readonly instead: string;
}

/** Phrases that readers did not understand at first reading, in comments, documents, messages and names of tests. */
export const phrases: readonly Phrase[] = [
  {
    pattern:
      /(?:^(?:\/\*\*|\/\/|#) |[.:;] |["'`]|\b(?:to|for|by|of|and|or|than|as|where|what|between|from|with|if|because|that) )who\b(?![^.]*\?)/gi,
    instead: "name the reader, client, node or caller",
  },
  {
    pattern: /(?:^(?:\/\*\*|\/\/) |\. )(?:Those|One that|Of (?:a|an|the|what|which|those))\b/g,
    instead: "start with a noun or a verb",
  },
  { pattern: /^\/\*\* What\b/g, instead: "start with a noun or a verb" },
  { pattern: /\bwhoever\b/gi, instead: "name the reader, client, node or caller" },
  { pattern: /(?<!["'])\bnobody\b(?!["'])/gi, instead: '"no client", "no node", "nothing"' },
  { pattern: /\bmend(?:s|ed|ing)?\b/gi, instead: "fix, repair, recover" },
  { pattern: /\banew\b/gi, instead: "again, rebuild, recreate" },
  { pattern: /\botherwise than\b/gi, instead: "differently from, unlike" },
  { pattern: /\bcomes? again\b/gi, instead: "retry, return, reconnect" },
  { pattern: /\b(?:what|that) stands?\b(?! (?:for|out|still))/gi, instead: "installed, current" },
  { pattern: /\bheed(?:s|ed|ing)?\b/gi, instead: "ignored, respected" },
  { pattern: /\b(?:is|are) no \w+(?: \w+)? of\b/gi, instead: '"is not a …"' },
  { pattern: /\b(?:is|are) others\b|\bothers than\b/gi, instead: "changed, differ from" },
  { pattern: /\bnothing is called\b/gi, instead: "not found" },
  { pattern: /\bthat cannot be(?=[.,;:)"'`|]| \|)/gi, instead: "invalid" },
  { pattern: /\bfor ever\b(?!y)/gi, instead: "indefinitely, without limit" },
  { pattern: /\b(?:is|was|were) to be had\b|\bwere had\b/gi, instead: "available" },
  { pattern: /\bno end of\b/gi, instead: "arbitrarily many" },
  { pattern: /\bsees? to it\b/gi, instead: "ensures" },
  { pattern: /\bwithout a word\b/gi, instead: "silently" },
];

/** Returns the places in a file where one of the phrases occurs. */
export function findPhrases(file: SourceFile): Finding[] {
  return splitPassages(file).flatMap(({ text, lineAt }) =>
    phrases.flatMap(({ pattern, instead }) =>
      [...text.matchAll(pattern)].map((match) => ({
        file: file.file,
        line: lineAt(match.index + match[0].search(/\w/)),
        problem: `"${match[0].trim()}": ${instead}`,
      })),
    ),
  );
}
