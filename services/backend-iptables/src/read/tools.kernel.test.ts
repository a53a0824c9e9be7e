import { expect, test } from "vitest";
import { describePackets, useLaboratory } from "../../../../test/kernel/describe-packets.ts";
import { whyNoLegacy } from "../../../../test/kernel/laboratory/legacy-tools.ts";
import { detectVariant } from "./tools.ts";

const someRules = (tool: string): string => `${tool} -w 5 -A INPUT -s 192.0.2.1 -j DROP`;
const hint = (tool: string): string => `${tool} -w 5 -t mangle -N KUBE-IPTABLES-HINT`;

describePackets("--iptables-variant auto", () => {
  const laboratory = useLaboratory();
  let count = 0;

  test.each([
    { name: "no rules", commands: [], variant: "auto", reason: "default of this system" },
    { name: "rules of iptables-nft", commands: [someRules("iptables-nft")], variant: "nft", reason: "1 rules" },
    {
      name: "kubelet's hint in ip6tables-nft, and more rules of iptables-legacy",
      commands: [hint("ip6tables-nft"), someRules("iptables-legacy")],
      variant: "nft",
      reason: "KUBE-IPTABLES-HINT",
    },
    {
      name: "kubelet's hint in iptables-legacy",
      commands: [hint("iptables-legacy")],
      variant: "legacy",
      reason: "HINT",
    },
    {
      name: "more rules of iptables-legacy",
      commands: [someRules("iptables-legacy"), someRules("iptables-legacy"), someRules("iptables-nft")],
      variant: "legacy",
      reason: "1 rules of iptables-nft, 2 of iptables-legacy",
    },
  ])("with $name, it chooses $variant", async ({ commands, variant, reason }) => {
    if (whyNoLegacy() !== undefined && commands.join().includes("legacy")) return;
    const node = `node${count++}`;
    await laboratory().add(node);
    for (const command of commands) await laboratory().run(node, ["sh", "-c", command]);
    const found = await detectVariant(async (command, { onOutput } = {}) => {
      const end = await laboratory().tryRun(node, command);
      onOutput?.(end.stdout);
      return end;
    });
    expect(found).toEqual({ variant, reason: expect.stringContaining(reason) });
  });
});
