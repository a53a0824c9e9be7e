import { expect, test } from "vitest";
import { rowsOf } from "./output-schema.ts";
import { runKpng } from "./run-kpng.ts";

test.each([
  [["get", "services"], "Service"],
  [["get", "endpoints"], "Endpoint"],
  [["get", "nodes"], "Node"],
  [["get", "changes"], "Change"],
  [["get", "view", "n1"], "EndpointDecision"],
])("kpng %j prints what docs/reference/output.schema.json promises", async (words, name) => {
  const { out } = await runKpng(["file", "-i", "test/fixtures/kpng/input.yaml", ...words, "-o", "json"]);
  const result = rowsOf(name).safeParse(JSON.parse(out).items);
  expect(result.error?.issues ?? []).toEqual([]);
});

test("kpng explain prints what docs/reference/output.schema.json promises", async () => {
  const words = ["explain", "--node", "n1", "default/web:http", "-o", "json"];
  const { out } = await runKpng(["file", "-i", "test/fixtures/kpng/input.yaml", ...words]);
  const result = rowsOf("ExplainResponse").safeParse([JSON.parse(out)]);
  expect(result.error?.issues ?? []).toEqual([]);
});
