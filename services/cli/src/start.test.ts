import { expect, test } from "vitest";
import { makeQueries } from "./commands/queries.ts";
import { queries } from "./start.ts";

test("every command that starts with the tree of queries is in it", () => {
  const names = makeQueries(new AbortController().signal).commands.map((command) => command.name());
  expect(names).toEqual(expect.arrayContaining([...queries]));
});
