import { readFileSync, writeFileSync } from "node:fs";
import { renderReferences } from "./references.ts";

/** Writes the generated tables of docs/reference again: `npm run docs`. */
for (const [path, text] of await renderReferences()) {
  if (readFileSync(path, "utf8") === text) continue;
  writeFileSync(path, text);
  process.stdout.write(`${path} written\n`);
}
