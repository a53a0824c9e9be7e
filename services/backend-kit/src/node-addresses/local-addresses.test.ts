import type { AddressSet, Family } from "@kpng/model/address.ts";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import { expect, test, vi } from "vitest";
import { ipv4OfLinks, parseIfInet6, parseNodePortAddresses, RecentAddresses } from "./local-addresses.ts";

test("an IPv6 address is local once duplicate address detection has ended well", () => {
  const table = `fd080000000000000000000000000001 03 40 00 82       v0
fd080000000000000000000000000002 03 40 00 c0       v0
fd080000000000000000000000000003 03 40 00 88       v0
fe8000000000000044f856fffef0f972 02 40 20 80      br9
`;
  expect(parseIfInet6(table)).toEqual([
    "fd08:0000:0000:0000:0000:0000:0000:0001",
    "fe80:0000:0000:0000:44f8:56ff:fef0:f972",
  ]);
});

test.each([
  { status: 0, failures: 0 },
  { status: 1, failures: 1 },
])("if ip ends with status $status, $failures failures are reported", (given) => {
  useScripts({ ip: `echo '4: kube-ipvs0    inet 10.96.0.1/32 scope host'; exit ${given.status}` });
  const onFailure = vi.fn();
  expect(ipv4OfLinks(onFailure)).toEqual([["kube-ipvs0", "10.96.0.1"]]);
  expect(onFailure).toHaveBeenCalledTimes(given.failures);
});

/** Addresses of a node whose reading takes `costMs` of each family. */
async function start(costMs: number) {
  const clock = new ManualClock();
  const present: Record<Family, string[]> = { v4: ["192.0.2.1"], v6: ["2001:db8::1"] };
  let spentMs = 0;
  const tool = { fails: false };
  const take = (family: Family): readonly string[] => {
    spentMs += costMs;
    return [...present[family]];
  };
  const read = (onFailure: () => void): AddressSet => ({
    get v4() {
      if (tool.fails) onFailure();
      return take("v4");
    },
    get v6() {
      return take("v6");
    },
  });
  const recent = new RecentAddresses({ read, nowMs: () => clock.nowMs() + spentMs });
  return { clock, present, recent, tool, spentMs: () => spentMs };
}

test("a reading is used for a second", async () => {
  const { clock, present, recent } = await start(60_000);
  recent.read().v4;
  present.v4.length = 0;
  await clock.advance(999);
  expect(recent.read().v4).toEqual(["192.0.2.1"]);
  await clock.advance(1);
  expect(recent.read().v4).toEqual([]);
});

test("a reading that failed is not used, unless there is no other, and is not kept", async () => {
  const { present, recent, tool } = await start(10);
  tool.fails = true;
  expect(recent.read().v4).toEqual(["192.0.2.1"]);
  tool.fails = false;
  present.v4 = ["192.0.2.2"];
  expect(recent.read().v4).toEqual(["192.0.2.2"]);
  tool.fails = true;
  present.v4 = ["192.0.2.2", "10.96.0.1"];
  recent.forget();
  expect(recent.read().v4).toEqual(["192.0.2.2"]);
  tool.fails = false;
  present.v4 = ["192.0.2.3"];
  expect(recent.read().v4).toEqual(["192.0.2.3"]);
});

test("the families are read separately, and only when they are accessed", async () => {
  const { recent, spentMs } = await start(10);
  recent.read();
  expect(spentMs()).toBe(0);
  expect([recent.read().v6, recent.read().v6]).toEqual([["2001:db8::1"], ["2001:db8::1"]]);
  expect(spentMs()).toBe(10);
});

test.each([
  { texts: [], rule: { kind: "cidrs", cidrs: [] } },
  { texts: ["10.1.2.3/8", "fd00::1/8"], rule: { kind: "cidrs", cidrs: ["10.0.0.0/8", "fd00::/8"] } },
  { texts: ["primary"], rule: { kind: "primary" } },
])("$texts is accepted, without host bits", ({ texts, rule }) => {
  expect(parseNodePortAddresses(texts)).toEqual(rule);
});

test.each([["primary", "10.0.0.0/8"], ["10.0.0.1"], ["eth0"]])("%s is refused", (...texts) => {
  expect(() => parseNodePortAddresses(texts)).toThrow("[BAD_OPTION]");
});
