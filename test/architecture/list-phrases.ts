import { formatFindings } from "./finding.ts";
import { findPhrases } from "./phrases.ts";
import { readProse } from "./prose.ts";

/**
 * Prints the phrases that must not return, in the files below the given paths or in all files:
 *
 *     node test/architecture/list-phrases.ts services/watcher/src/store docs/alerts.md
 */
const paths = process.argv.slice(2);
const isWanted = (file: string): boolean =>
  paths.length === 0 || paths.some((path) => file === path || file.startsWith(`${path.replace(/\/$/, "")}/`));
process.stdout.write(
  `${formatFindings(
    readProse()
      .filter(({ file }) => isWanted(file))
      .flatMap(findPhrases),
  )}\n`,
);
