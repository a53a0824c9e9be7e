import { expect, test } from "vitest";
import { rowsOf } from "./output-schema.ts";
import { runKpng } from "./run-kpng.ts";

test.each([
  [["get", "services"], "Service"],
  [["get", "endpoints"], "Endpoint"],
  [["get", "nodes"], "Node"],
  [["get", "changes"], "Change"],
  [["get", "view", "n1"], "EndpointDecision"],
  [["explain", "--node", "n1", "default/web:http"], "ExplainResponse"],
])("kpng %j prints what docs/reference/output.schema.json promises", async (words, name) => {
  const { out } = await runKpng(["file", "-i", "test/fixtures/kpng/input.yaml", ...words, "-o", "json"]);
  const answer = JSON.parse(out);
  const result = rowsOf(name).safeParse(answer.items ?? [answer]);
  expect(result.error?.issues ?? []).toEqual([]);
});
