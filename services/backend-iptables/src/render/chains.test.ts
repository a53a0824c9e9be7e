import { expect, test } from "vitest";
import { ChainNames, maxChainNameLength, prefixOf } from "./chains.ts";

test("the hash of a service port is kube-proxy's", () => {
  expect(new ChainNames("KUBE-").ofServicePort("ns1/svc1:p80", "TCP")("SVC")).toBe("KUBE-SVC-XPGD46QRK7WJZT7O");
  expect(new ChainNames("KUBE-").clientList("ns1/svc1:p80", "TCP", "10.180.0.1:80")).toBe("KUBE-SEP-SXIVWICOYRO3J4NJ");
});

test("no name is longer than the kernel takes, with the longest prefix", () => {
  const names = new ChainNames("KPNGABC-");
  const all = [
    names.ofServicePort("ns/x", "SCTP")("SVC"),
    names.fixed("EXTERNAL-SERVICES"),
    names.addressBucket("SERVICES", "255.255.255.0"),
    names.addressBucket("HAIRPIN", "fd00:1234:5678:9abc:def0:1234:5678:0"),
    names.nodePortBucket("SCTP", 32_704),
  ];
  expect(all.filter((name) => name.length > maxChainNameLength)).toEqual([]);
});

test("instances with other proxy names have other prefixes, none the beginning of another", () => {
  const prefixes = ["", "edge", "internal", "a"].map(prefixOf);
  expect(new Set(prefixes).size).toBe(prefixes.length);
  for (const a of prefixes) for (const b of prefixes) expect(a !== b && a.startsWith(b)).toBe(false);
});
