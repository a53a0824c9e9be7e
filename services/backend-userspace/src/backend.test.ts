import { expect, test } from "vitest";
import { readUserspaceSettings } from "./backend.ts";

test("each instance has a table of its own, which kpng-nft never has", () => {
  const tables = ["", "blue", "green"].map((name) => readUserspaceSettings({}, name).tableName);
  expect(tables).toEqual(["kpng-user", "kpng-user-16477688", "kpng-user-ba4788b2"]);
});
