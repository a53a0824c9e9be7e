import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { fromJSONSchema } from "zod";
import { runKpng } from "./run-kpng.ts";

const schema = JSON.parse(readFileSync("docs/reference/output.schema.json", "utf8"));

/** Returns a check that values are lists of rows of a type, with no field that the schema lacks. */
function rowsOf(name: string) {
  const strict = Object.fromEntries(
    Object.entries(schema.$defs).map(([key, value]) => [key, { ...(value as object), additionalProperties: false }]),
  );
  return fromJSONSchema({ ...schema, $defs: strict, type: "array", minItems: 1, items: { $ref: `#/$defs/${name}` } });
}

test.each([
  [["get", "services"], "Service"],
  [["get", "endpoints"], "Endpoint"],
  [["get", "nodes"], "Node"],
  [["get", "changes"], "Change"],
  [["get", "view", "n1"], "EndpointDecision"],
])("kpng %j prints what docs/reference/output.schema.json promises", async (words, name) => {
  const { out } = await runKpng(["file", "-i", "test/fixtures/kpng/input.yaml", ...words, "-o", "json"]);
  const result = rowsOf(name).safeParse(JSON.parse(out));
  expect(result.error?.issues ?? []).toEqual([]);
});

test("kpng explain prints what docs/reference/output.schema.json promises", async () => {
  const words = ["explain", "--node", "n1", "default/web:http", "-o", "json"];
  const { out } = await runKpng(["file", "-i", "test/fixtures/kpng/input.yaml", ...words]);
  const result = rowsOf("ExplainResponse").safeParse([JSON.parse(out)]);
  expect(result.error?.issues ?? []).toEqual([]);
});
