import { readFileSync } from "node:fs";
import { fromJSONSchema } from "zod";

const schema = JSON.parse(readFileSync("docs/reference/output.schema.json", "utf8"));

/**
 * Returns a check that values are lists of rows of a type, with no field that docs/reference/output.schema.json lacks.
 * The test of the documents and the tests of commands with a watcher of their own use it.
 */
export function rowsOf(name: string) {
  const strict = Object.fromEntries(
    Object.entries(schema.$defs).map(([key, value]) => [key, { ...(value as object), additionalProperties: false }]),
  );
  return fromJSONSchema({ ...schema, $defs: strict, type: "array", minItems: 1, items: { $ref: `#/$defs/${name}` } });
}
