import { expect, test } from "vitest";
import { flowsToForget, translationsIn } from "../../../examples/all-ip/flows.ts";
import { renderRules } from "../../../examples/all-ip/rules.ts";
import type { ExternalAddress } from "../../../examples/all-ip/wanted.ts";

const one: ExternalAddress = { address: "198.51.100.10", service: "default/web", endpoints: ["10.1.1.11"] };
const three: ExternalAddress = { ...one, endpoints: ["10.1.1.11", "10.1.1.12", "10.1.1.13"] };

test("each of several endpoints gets the same share of new connections", () => {
  expect(renderRules("v4", [three]).slice(0, 3)).toEqual([
    '-A KPNG-ALLIP -d 198.51.100.10/32 -m comment --comment "default/web" -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.1.1.11',
    '-A KPNG-ALLIP -d 198.51.100.10/32 -m comment --comment "default/web" -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.1.1.12',
    '-A KPNG-ALLIP -d 198.51.100.10/32 -m comment --comment "default/web" -j DNAT --to-destination 10.1.1.13',
  ]);
});

test("UDP and ICMP flows to a removed endpoint are deleted, and others stay", () => {
  const before = translationsIn(renderRules("v4", [three]));
  const calls = flowsToForget("v4", before, [{ ...three, endpoints: ["10.1.1.11", "10.1.1.13"] }]);
  expect(calls.map((call) => call.join(" "))).toEqual([
    "-D -f ipv4 -p udp --orig-dst 198.51.100.10 --dst-nat 10.1.1.12",
    "-D -f ipv4 -p icmp --orig-dst 198.51.100.10 --dst-nat 10.1.1.12",
  ]);
});
