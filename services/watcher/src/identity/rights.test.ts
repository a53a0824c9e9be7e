import { expect, test } from "vitest";
import { type ClientSocket, joinRights, noRights, rightsOfCertificate, rightsOfConnection } from "./rights.ts";

const none = { nodes: new Set(), hasState: false, hasInspection: false };

test.each([
  { names: "DNS:n1", rights: none },
  { names: "URI:kpng://node/n1, DNS:x, URI:kpng://node/n2", rights: { ...none, nodes: new Set(["n1", "n2"]) } },
  { names: "URI:kpng://node/*", rights: { ...none, nodes: "all" } },
  // A name of another kind cannot smuggle one of ours in: Node.js quotes names with separators.
  { names: 'DNS:"a, URI:kpng://node/n1"', rights: none },
  { names: "URI:https://kpng://node/n1", rights: none },
  { names: "URI:kpng://node/", rights: none },
  { names: "URI:kpng://nodes/n1", rights: none },
])("a certificate with $names gives these rights", ({ names, rights }) => {
  const { identity, ...given } = rightsOfCertificate(names, "c");
  expect(given).toEqual(rights);
  expect(identity).toBe('certificate "c"');
});

test("an expired certificate gives no rights, although a resumed session counts as authorized", () => {
  const certificate = {
    subject: { CN: "n1" },
    subjectaltname: "URI:kpng://node/n1",
    valid_to: "Nov 24 00:00:00 2026 GMT",
  };
  const socket = {
    remoteAddress: "192.0.2.1",
    authorized: true,
    getPeerCertificate: () => certificate,
  } as unknown as ClientSocket;
  const nodesAt = (time: string) => rightsOfConnection(socket, false, {}, Date.parse(time)).nodes;
  expect(nodesAt("2026-11-23T23:59:59Z")).toEqual(new Set(["n1"]));
  expect(nodesAt("2026-11-24T00:00:00Z")).toEqual(new Set());
});

const one = { ...noRights, nodes: new Set(["n1"]), identity: 'certificate "a"' };
const other = { nodes: new Set(["n2"]), hasState: true, hasInspection: true, identity: 'user "b"' };

test("a right to the views of all nodes stays, whatever the other proof names", () => {
  expect(joinRights({ ...one, nodes: "all" }, other).nodes).toBe("all");
  expect(joinRights(one, { ...other, nodes: "all" }).nodes).toBe("all");
});
