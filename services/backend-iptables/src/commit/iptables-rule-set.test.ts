import { expect, test } from "vitest";
import { listRules } from "./iptables-rule-set.ts";

const [shop, shopChain, other] = [
  "KPNG-EXT-AAAAAAAAAAAAAAAA",
  "KPNG-SVC-AAAAAAAAAAAAAAAA",
  "KPNG-SVC-BBBBBBBBBBBBBBBB",
];
const bodies = new Map([
  [
    "nat KPNG-IP-10.96.0.0",
    `-A KPNG-IP-10.96.0.0 -d 10.96.0.1/32 -m comment --comment "ns/shop:http external IP" -j ${shop}\n` +
      `-A KPNG-IP-10.96.0.0 -d 10.96.0.2/32 -m comment --comment "ns/shop-2:http cluster IP" -j ${other}\n`,
  ],
  [`nat ${shop}`, `-A ${shop} -j KPNG-MARK-MASQ\n-A ${shop} -j ${shopChain}\n`],
  [`nat ${shopChain}`, `-A ${shopChain} -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:80\n`],
  [`nat ${other}`, `-A ${other} -p tcp -m tcp -j DNAT --to-destination 10.1.0.2:80\n`],
  ["nat KPNG-MARK-MASQ", "-A KPNG-MARK-MASQ -j MARK --or-mark 0x4000\n"],
] as const);

test("the rules of one Service are the lines that name it, and the chains of its ports that these lead to", () => {
  expect(listRules(() => bodies).linesOf?.("ns/shop")).toEqual([
    `nat -A ${shop} -j KPNG-MARK-MASQ`,
    `nat -A ${shop} -j ${shopChain}`,
    `nat -A KPNG-IP-10.96.0.0 -d 10.96.0.1/32 -m comment --comment "ns/shop:http external IP" -j ${shop}`,
    `nat -A ${shopChain} -p tcp -m tcp -j DNAT --to-destination 10.1.0.1:80`,
  ]);
  expect(listRules(() => bodies).linesOf?.("ns/absent")).toEqual([]);
});
