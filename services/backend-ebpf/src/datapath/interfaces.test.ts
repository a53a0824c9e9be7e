import { describe, expect, test } from "vitest";
import { findRootCgroup } from "./features.ts";
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

describe("findRootCgroup", () => {
  test("the root cgroup is where version 2 is mounted, also beside version 1", () => {
    const mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    expect(findRootCgroup(mounts)).toBe("/sys/fs/cgroup/unified");
  });

  test("a machine without version 2 is rejected with CGROUP_UNKNOWN", () => {
    expect(() => findRootCgroup("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n")).toThrow("[CGROUP_UNKNOWN]");
  });
});
