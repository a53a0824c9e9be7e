import type { ServiceView } from "@kpng/model/node-view.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { beforeAll, describe, expect, test } from "vitest";
import { describePackets, useLaboratory } from "../../../../test/kernel/describe-packets.ts";
import type { Variant } from "../read/tools.ts";
import { type KernelRules, kernelRules } from "../testing/kernel-rules.ts";
import { restoreRules } from "./open-rule-sets.ts";
import { cleanupTransaction } from "./remove-rules.ts";

const at = (address: string, isOnNode = false) =>
  endpoint(address, { ports: [{ name: "", port: 8080 }], isOnNode, use: { cluster: true, local: isOnNode } });
const web = (...addresses: readonly string[]): ServiceView =>
  service("ns/web", {
    ips: ["10.96.0.10"],
    type: "LoadBalancer",
    loadBalancerIPs: ["5.6.7.8"],
    ipFilters: [{ sourceRanges: ["203.0.113.0/25"] }],
    externalTrafficPolicy: "Local",
    clientIPAffinitySeconds: 60,
    ports: [port(80, { nodePort: 30_080 })],
    endpoints: addresses.map((address, index) => at(address, index === 0)),
  });
const api = service("ns/api", {
  ips: ["10.96.3.11"],
  endpoints: [at("10.0.0.7", true), at("10.0.0.8"), at("10.0.0.9")],
});
const whole = view([web("10.0.1.1", "10.0.1.2", "10.0.1.3"), api, service("ns/none", { ips: ["10.96.0.12"] })]);

describePackets("rules in the kernel", () => {
  const laboratory = useLaboratory();
  let count = 0;

  describe.each<Variant>(["nft", "legacy"])("iptables-%s", (variant) => {
    let rules: KernelRules;
    const fresh = async (): Promise<KernelRules> => kernelRules(laboratory(), `net${count++}`, variant);
    beforeAll(async () => {
      rules = await fresh();
    });
    const tool = (what: string): string => `iptables-${variant} -w 5 ${what}`;

    test("a second sync commits nothing, and a changed endpoint rewrites only its own chains, in one transaction", async () => {
      const family = rules.start();
      const restoredBefore: number[] = [];
      const committing = () => restoredBefore.push(rules.restored.length);
      for (const mode of ["full", "none"]) expect((await family.syncView(whole, "all", committing)).mode).toBe(mode);
      // Once, before the first transaction.
      expect(restoredBefore).toEqual([0]);
      expect((await family.syncView(whole, new Set(["ns/web", "ns/api"]))).mode).toBe("none");
      expect(rules.restored).toHaveLength(1);
      const fewer = new Map(whole.services).set("ns/web", web("10.0.1.1", "10.0.1.2"));
      await family.syncView({ ...whole, services: fewer }, new Set(["ns/web"]));
      const lines = (rules.restored[1] ?? "").split("\n").filter((line) => line.startsWith(":"));
      // With external policy Local, a pod of another node may reach itself by way of this node.
      expect(lines.sort()).toEqual([
        expect.stringMatching(/^:KPNG-HP-10\.0\.1\.0 /),
        expect.stringMatching(/^:KPNG-SVC-/),
      ]);
      await family.syncView(whole, new Set(["ns/web"]));
      expect((await family.syncView(whole)).mode).toBe("none");
      // A sync of all Services also compares the installed rules.
      await rules.run(tool("-t nat -F KPNG-HAIRPIN"));
      expect((await family.syncView(whole, "all")).mode).toBe("full");
    });

    test("a restart with another view rewrites only changed chains and deletes unused ones, and with the same view none", async () => {
      await rules.start().syncView(whole);
      const services = new Map(whole.services);
      services.delete("ns/web");
      const { mode, ruleset } = await rules.start().syncView({ ...whole, services });
      expect(mode).toBe("full");
      expect(ruleset.nat.puts.map(({ chain }) => chain).sort()).toEqual([
        "KPNG-HAIRPIN",
        "KPNG-NODEPORTS",
        "KPNG-SERVICES",
      ]);
      expect(ruleset.nat.deletes.map((chain) => chain.replace(/-[A-Z2-7]{16}$/, "")).sort()).toEqual([
        ...[
          "KPNG-EXT",
          "KPNG-FW",
          "KPNG-HP-10.0.1.0",
          "KPNG-IP-10.96.0.0",
          "KPNG-IP-5.6.7.0",
          "KPNG-NP-TCP-30080",
          "KPNG-SVC",
          "KPNG-SVL",
        ],
      ]);
      expect((await rules.start().syncView({ ...whole, services })).mode).toBe("none");
    });

    const drifts: readonly { readonly name: string; readonly command: string }[] = [
      { name: "nat flushed and all its chains deleted", command: `${tool("-t nat -F")} && ${tool("-t nat -X")}` },
      { name: "one rule added", command: tool("-t nat -A KPNG-SERVICES -j RETURN") },
      { name: "one rule deleted", command: tool("-t nat -D KPNG-HAIRPIN 1") },
      { name: "one rule replaced", command: tool("-R KPNG-FORWARD 1 -j ACCEPT") },
      { name: "a jump deleted", command: tool("-D FORWARD 1") },
      {
        name: "a jump to our chains added where this version has none",
        command: `${tool("-t nat -N KPNG-OLD")} && ${tool('-t nat -A INPUT -m comment --comment "kpng old" -j KPNG-OLD')}`,
      },
      { name: "an unwanted chain with our prefix added", command: tool("-t nat -N KPNG-SVC-AAAAAAAAAAAAAAAA") },
    ];
    test.each(drifts)("$name: repaired, and the next check finds no difference", async ({ command }) => {
      const family = rules.start();
      await family.syncView(whole);
      const before = await rules.shown();
      await rules.run(command);
      expect((await family.repair()).mode).toBe("full");
      expect(await rules.shown()).toEqual(before);
      expect((await family.repair()).mode).toBe("none");
    });

    test("what another program changes right after a repair, the next repair finds and repairs", async () => {
      let left = 0;
      const family = rules.start({ meddle: async () => (left-- > 0 ? await rules.run(tool("-t nat -F")) : undefined) });
      await family.syncView(whole);
      const before = await rules.shown();
      await rules.run(tool("-t nat -F"));
      left = 2;
      for (let repair = 0; repair < 2; repair++) {
        expect((await family.repair()).mode).toBe("full");
        expect(await rules.shown()).not.toEqual(before);
      }
      expect((await family.repair()).mode).toBe("full");
      expect(await rules.shown()).toEqual(before);
      expect((await family.repair()).mode).toBe("none");
    });

    test("inspection shows the installed rules during a check and a repair, and none after a failure", async () => {
      const shown: number[] = [];
      let isFailing = false;
      const family = rules.start({
        meddle: async () => void shown.push(family.committed.size),
        read: async (take) => {
          shown.push(family.committed.size);
          if (isFailing) throw new Error("cannot read the rules");
          await rules.kernel.read(take);
        },
      });
      await family.syncView(whole);
      const { size } = family.committed;
      expect(size).toBeGreaterThan(10);
      await rules.run(tool("-t nat -F"));
      shown.length = 0;
      await family.repair();
      expect(shown).toEqual([size, size]);
      isFailing = true;
      await expect(family.repair()).rejects.toThrow("cannot read the rules");
      expect(family.committed.size).toBe(0);
    });

    test("a cleanup does not change rules of other programs and of other instances", async () => {
      const own = await fresh();
      await own.run(`${tool("-t nat -N KUBE-SERVICES")} && ${tool("-t nat -A PREROUTING -j KUBE-SERVICES")}`);
      await own.run(tool("-A FORWARD -s 1.2.3.4 -m comment --comment 'by hand' -j DROP"));
      await own.start({ prefix: "KPNGABC-" }).syncView(whole);
      const before = await own.shown();
      await own.start().syncView(whole);
      expect((await own.shown()).length).toBeGreaterThan(before.length);
      const { tools } = own;
      const run = (command: readonly string[], { input }: { readonly input?: string | undefined } = {}) =>
        laboratory().tryRun(`net${count - 1}`, command, input);
      const transaction = cleanupTransaction(await own.saved(), "KPNG-");
      await restoreRules(transaction, { tools, run });
      expect(await own.shown()).toEqual(before);
    });

    test("a rejected transaction names its line and changes nothing, and the next sync repairs", async () => {
      const own = await fresh();
      const family = own.start();
      await family.syncView(whole);
      const before = await own.shown();
      // Our chain cannot be deleted while another program's rule jumps to it.
      await own.run(`${tool("-t nat -N OTHER")} && ${tool("-t nat -A OTHER -j KPNG-IP-5.6.7.0")}`);
      const services = new Map(whole.services);
      services.delete("ns/web");
      const refused = family.syncView({ ...whole, services }, new Set(["ns/web"]));
      await expect(refused).rejects.toMatchObject({ code: "RESTORE_REFUSED" });
      await expect(refused).rejects.toThrow(/at line \d+ "/);
      const nat = (lines: readonly string[]) =>
        lines.filter((line) => /KPNG-(IP|SVC|EXT)/.test(line) && !/OTHER/.test(line));
      expect(nat(await own.shown())).toEqual(nat(before));
      await own.run(`${tool("-t nat -F OTHER")} && ${tool("-t nat -X OTHER")}`);
      expect((await family.syncView({ ...whole, services }, new Set())).mode).toBe("full");
      expect((await family.repair()).mode).toBe("none");
    });
  });
});
