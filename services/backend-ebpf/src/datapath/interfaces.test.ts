import { describe, expect, test } from "vitest";
import { listInterfaces, parseBridges } from "./interfaces.ts";

const table = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:       0       0    0    0    0     0          0         0        0       0    0    0
  eth0:    1234      12    0    0    0     0          0         0     1234      12    0    0
veth1a:       0       0    0    0    0     0          0         0        0       0    0    0
`;

describe("interfaces", () => {
  test.each([
    { patterns: [], names: ["eth0", "veth1a"] },
    { patterns: ["veth*", "lo"], names: ["lo", "veth1a"] },
    { patterns: ["eth0", "eth1"], names: ["eth0"] },
  ])("$patterns selects $names", ({ patterns, names }) => {
    expect(listInterfaces(patterns, table)).toEqual(names);
  });

  test("the bridge of a port is found in the output of ip", () => {
    const text = `1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default
5: veth1@if2: <BROADCAST,UP> mtu 1500 qdisc noqueue master cni0 state UP mode DEFAULT group default
`;
    expect([...parseBridges(text)]).toEqual([["veth1", "cni0"]]);
  });
});
