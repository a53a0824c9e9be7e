import { expect, test } from "vitest";
import { isDeviation, ProxyProfile, parseExceptions } from "./deviations.ts";

const isKnown = (name: string): boolean => isDeviation(name.split("/")[0] ?? "") || name === "cleanup";
const profileOf = (text: string) => new ProxyProfile(parseExceptions(text, isKnown));

test.each([
  ["no-sctp\n", "the exception no-sctp has no reason"],
  ["no-stcp it has none\n", '"no-stcp" is neither a case nor a deviation'],
])("exceptions %j are refused", (text, message) => {
  expect(() => parseExceptions(text, isKnown)).toThrow(message);
});

test("a deviation holds for all protocols, or for the one that it names", () => {
  const profile = profileOf("# known\nno-sctp no sockets\nno-loopback-node-ports/udp sockets serve TCP\n");
  expect(profile.reasonFor("no-sctp", "tcp")).toBe("no sockets");
  expect(profile.reasonFor("no-loopback-node-ports", "udp")).toBe("sockets serve TCP");
  expect(profile.reasonFor("no-loopback-node-ports", "tcp")).toBeUndefined();
  expect(profile.pick({ "claims-vary": 1, "no-sctp": 2 }, "sctp")).toEqual({ value: 2, reason: "no sockets" });
});

test("a proxy serves both families, or the one that its deviation leaves", () => {
  expect(profileOf("").families).toEqual(["v4", "v6"]);
  expect(profileOf("no-ipv6 written for IPv4\n").families).toEqual(["v4"]);
});

test("a deviation that nothing asked about is unused; a case is no deviation", () => {
  const profile = profileOf("no-sctp no sockets\nclaims-vary/udp never asked\ncleanup a known fault\n");
  expect(profile.unused).toEqual(["no-sctp", "claims-vary/udp"]);
  profile.reasonFor("no-sctp", "sctp");
  profile.reasonFor("claims-vary");
  expect(profile.unused).toEqual(["claims-vary/udp"]);
});
