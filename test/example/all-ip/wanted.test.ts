import { describe, expect, test } from "vitest";
import { InputError, readWanted } from "../../../examples/all-ip/wanted.ts";
import { serviceLine } from "./node-state.ts";

const v4 = "198.51.100.10";
const v6 = "2001:db8:100::10";

describe("wanted rules of a node's state", () => {
  test("an external IP leads to the endpoints of its family on this node", () => {
    const line = serviceLine(
      "web",
      [v4, v6],
      ["10.1.1.12", "10.1.1.11", "fd00::11", { address: "10.1.2.9", isElsewhere: true }],
    );
    expect(readWanted(`${line}\n`)).toEqual({
      v4: [{ address: v4, service: "default/web", endpoints: ["10.1.1.11", "10.1.1.12"] }],
      v6: [{ address: v6, service: "default/web", endpoints: ["fd00::11"] }],
      notes: [],
    });
  });

  const nothing: readonly { readonly name: string; readonly input: string }[] = [
    { name: "an empty state", input: "" },
    { name: "a Service without endpoints", input: serviceLine("web", [v4], []) },
    { name: "a Service without external IPs", input: serviceLine("web", [], ["10.1.1.11"]) },
    {
      name: "endpoints on other nodes only",
      input: serviceLine("web", [v4], [{ address: "10.1.2.9", isElsewhere: true }]),
    },
    {
      name: "endpoints not for traffic from outside",
      input: serviceLine("web", [v4], [{ address: "10.1.1.9", isInternalOnly: true }]),
    },
    { name: "endpoints of the other family only", input: serviceLine("web", [v4], ["fd00::11"]) },
  ];
  for (const { name, input } of nothing) {
    test(`${name} gives no rules`, () => {
      expect(readWanted(input)).toEqual({ v4: [], v6: [], notes: [] });
    });
  }

  test("addresses have the format of the kernel's tools, without duplicates", () => {
    const line = serviceLine("web", ["2001:DB8:100:0:0:0:0:10", v6], ["FD00:0::11", "fd00::11"]);
    expect(readWanted(line).v6).toEqual([{ address: v6, service: "default/web", endpoints: ["fd00::11"] }]);
  });

  test("the first of two Services with the same external IP gets it, even if only the second has endpoints here", () => {
    const state = [serviceLine("a", [v4], []), serviceLine("b", [v4], ["10.1.1.11"])].join("\n");
    expect(readWanted(state)).toEqual({
      v4: [],
      v6: [],
      notes: [`${v4} belongs to default/a; ignoring it in default/b`],
    });
  });
});

describe("an invalid state is rejected as a whole", () => {
  const good = serviceLine("good", [v4], ["10.1.1.11"]);
  const refused: readonly { readonly line: string; readonly says: string }[] = [
    {
      line: serviceLine("web", ["198.51.100.10 -j ACCEPT"], []),
      says: '"198.51.100.10 -j ACCEPT" is not an IPv4 address',
    },
    { line: serviceLine("web", ["198.51.100.10\nCOMMIT"], []), says: "is not an IPv4 address" },
    { line: serviceLine("web", ["010.1.1.1"], []), says: "is not an IPv4 address" },
    { line: serviceLine("web", ["fe80::1%eth0"], []), says: "is not an IPv6 address" },
    { line: serviceLine("web", [v4], ["pod.example"]), says: '"pod.example" is not an IPv4 address' },
    { line: serviceLine("web", [v4], [{ address: "10.1.1.999", isElsewhere: true }]), says: "10.1.1.999" },
    { line: serviceLine("web", ["0.0.0.0"], []), says: "0.0.0.0 is an unspecified" },
    { line: serviceLine("web", ["169.254.169.254"], []), says: "link-local" },
    { line: serviceLine("web", ["::ffff:10.1.1.1"], []), says: "reserved" },
    { line: serviceLine("web", ["ff02::1"], []), says: "multicast" },
    { line: serviceLine('web" -j ACCEPT', [v4], []), says: "is not a name" },
    { line: good.slice(0, -10), says: "not JSON" },
    { line: '{"Endpoints":null}', says: "Service: expected an object, got nothing" },
    { line: good.replace('"V4":["198.51.100.10"]', '"V4":"198.51.100.10"'), says: "expected a list" },
  ];
  for (const { line, says } of refused) {
    test(`${says} (${line.slice(0, 120)})`, () => {
      const read = () => readWanted(`${good}\n${line}`);
      expect(read).toThrow(InputError);
      expect(read).toThrow(says);
      expect(read).toThrow("line 2");
    });
  }
});
