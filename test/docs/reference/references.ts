import { readFileSync } from "node:fs";
import { fillBlocks } from "./fill-blocks.ts";
import { makeMetricTables } from "./metric-tables.ts";
import { makeOptionTables } from "./option-tables.ts";

/**
 * Returns the references by path, as they are to be: the text of the files, with tables made from the code.
 *
 * Errors: an option that no table lists.
 */
export async function renderReferences(): Promise<ReadonlyMap<string, string>> {
  const { options, optionsByCommand, environment, missing } = makeOptionTables();
  const writers = { options, optionsByCommand, environment, metrics: await makeMetricTables() };
  const paths = ["options", "metrics"].map((name) => `docs/reference/${name}.md`);
  const filled = new Map(paths.map((path) => [path, fillBlocks(readFileSync(path, "utf8"), writers)]));
  if (missing().length > 0) throw new Error(`docs/reference/options.md has no table for ${missing().join(", ")}`);
  return filled;
}
