import { expect, test } from "vitest";
import { joinRights, noRights } from "./rights.ts";

const one = { ...noRights, nodes: new Set(["n1"]), identity: 'certificate "a"' };
const other = { nodes: new Set(["n2"]), hasState: true, hasInspection: true, identity: 'user "b"' };

test.each([
  { name: "certificate and token", connection: one, token: other },
  { name: "token and certificate", connection: other, token: one },
])("a call has every right that $name give", ({ connection, token }) => {
  expect(joinRights(connection, token)).toEqual({
    nodes: new Set(["n1", "n2"]),
    hasState: true,
    hasInspection: true,
    identity: `${connection.identity} and ${token.identity}`,
  });
});

test("a right to the views of all nodes stays, whatever the other proof names", () => {
  expect(joinRights({ ...one, nodes: "all" }, other).nodes).toBe("all");
  expect(joinRights(one, { ...other, nodes: "all" }).nodes).toBe("all");
});
