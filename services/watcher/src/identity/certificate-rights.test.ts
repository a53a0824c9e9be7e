import { expect, test } from "vitest";
import { rightsOfCertificate } from "./certificate-rights.ts";

const none = { nodes: new Set(), hasState: false, hasInspection: false };

test.each([
  { names: undefined, rights: none },
  { names: "DNS:n1", rights: none },
  { names: "URI:kpng://node/n1", rights: { ...none, nodes: new Set(["n1"]) } },
  { names: "URI:kpng://node/n1, DNS:x, URI:kpng://node/n2", rights: { ...none, nodes: new Set(["n1", "n2"]) } },
  { names: "URI:kpng://node/*", rights: { ...none, nodes: "all" } },
  { names: "URI:kpng://state", rights: { ...none, nodes: "all", hasState: true } },
  { names: "URI:kpng://inspection", rights: { ...none, hasInspection: true } },
  // A name of another kind cannot smuggle one of ours in: Node.js quotes names with separators.
  { names: 'DNS:"a, URI:kpng://node/n1"', rights: none },
  { names: "URI:https://kpng://node/n1", rights: none },
  { names: "URI:kpng://node/", rights: none },
  { names: "URI:kpng://nodes/n1", rights: none },
])("a certificate with $names gives these rights", ({ names, rights }) => {
  const { identity, ...found } = rightsOfCertificate(names, "c");
  expect(found).toEqual(rights);
  expect(identity).toBe('certificate "c"');
});
