import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { endpoint, service, view } from "@kpng/model/testing/views.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";
import type { Variant } from "../read/tools.ts";
import { type KernelRules, kernelRules } from "../testing/kernel-rules.ts";

const main = fileURLToPath(new URL("../main.ts", import.meta.url));

const at = (address: string) =>
  endpoint(address, { ports: [{ name: "", port: 8080 }], use: { cluster: true, local: false } });
const web = (...addresses: readonly string[]) =>
  service("ns/web", { ips: ["10.96.0.10"], endpoints: addresses.map(at) });
const api = service("ns/api", { ips: ["10.96.3.11"], endpoints: [at("10.0.0.7")] });
const whole = view([web("10.0.1.1"), api]);
const withoutApi = view([web("10.0.1.1")]);

/** The chain of ns/api's address. */
const apiChain = "KPNG-IP-10.96.3.0";

describePackets("rules of other programs", () => {
  let laboratory: Laboratory;
  let count = 0;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
  });
  afterAll(() => laboratory.close());

  const fresh = async (variant: Variant) => {
    const name = `net${count++}`;
    const rules = await kernelRules(laboratory, name, variant);
    const cleanUp = () => laboratory.tryRun(name, [process.execPath, main, "--cleanup"]);
    return { rules, cleanUp };
  };

  describe("a rule that only nft can print, in a table of iptables-nft", () => {
    const foreign = "nft add rule ip nat POSTROUTING oifname eth9 masquerade";
    const deleteForeign =
      "nft -a list chain ip nat POSTROUTING | sed -n 's/.*eth9.* handle //p' | xargs -I % nft delete rule ip nat POSTROUTING handle %";
    const jumps = (rules: KernelRules) => rules.run("nft list chain ip nat PREROUTING | grep -c KPNG-SERVICES");

    test("is named, nothing is inserted twice, and changes follow when it is moved", async () => {
      const { rules } = await fresh("nft");
      const family = rules.start();
      await family.syncView(whole);
      await rules.run(foreign);
      for (let look = 0; look < 3; look++) {
        await expect(family.repair()).rejects.toThrow(
          "[TABLE_INCOMPATIBLE] iptables-nft-save cannot print table nat: a program added rules with nft.",
        );
      }
      await expect(family.syncView(view([web("10.0.1.9"), api]))).rejects.toThrow("[TABLE_INCOMPATIBLE]");
      expect((await jumps(rules)).trim()).toBe("1");
      await rules.run(deleteForeign);
      await family.repair();
      expect(await rules.run("nft list table ip nat")).toContain("10.0.1.9:8080");
    });

    test("makes a cleanup fail, after the rules of other tables and families are removed", async () => {
      const { rules, cleanUp } = await fresh("nft");
      await rules.start().syncView(whole);
      await rules.run(foreign);
      const { exitCode, stderr } = await cleanUp();
      expect([exitCode, stderr]).toEqual([1, expect.stringContaining("[TABLE_INCOMPATIBLE]")]);
      await rules.run(deleteForeign);
      expect((await cleanUp()).exitCode).toBe(0);
      expect((await rules.saved()).includes("KPNG")).toBe(false);
    });
  });

  describe.each<Variant>(["nft", "legacy"])("iptables-%s", (variant) => {
    const tool = (what: string): string => `iptables-${variant} -w 5 ${what}`;
    const jumpFromUser = `${tool("-t nat -N USER")} && ${tool(`-t nat -A USER -j ${apiChain}`)}`;

    test("a chain that a user's chain jumps to is emptied, and deleted when nothing jumps to it", async () => {
      const { rules } = await fresh(variant);
      await rules.start().syncView(whole);
      await rules.run(jumpFromUser);
      const family = rules.start();
      await family.syncView(withoutApi);
      const saved = await rules.saved();
      expect([saved.includes(`:${apiChain} `), saved.includes(`-A ${apiChain}`)]).toEqual([true, false]);
      expect(saved).not.toContain("10.0.0.7");
      expect((await family.repair()).mode).toBe("none");
      await rules.run(tool("-t nat -F USER"));
      await family.repair();
      expect(await rules.saved()).not.toContain(apiChain);
    });

    test("a jump that appears between two syncs delays the other changes of the table by one attempt", async () => {
      const { rules } = await fresh(variant);
      const family = rules.start();
      await family.syncView(whole);
      await rules.run(jumpFromUser);
      const next = view([web("10.0.1.9")]);
      const both = new Set(["ns/api", "ns/web"] as const);
      await expect(family.syncView(next, both)).rejects.toThrow("[RESTORE_REFUSED]");
      await family.syncView(next);
      expect(await rules.saved()).toContain("10.0.1.9:8080");
    });

    test("a jump to our chains in a built-in chain that this version does not use is deleted", async () => {
      const { rules } = await fresh(variant);
      const family = rules.start();
      await family.syncView(whole);
      await rules.run(
        `${tool("-t nat -N KPNG-OLD")} && ${tool('-t nat -A INPUT -m comment --comment "kpng old" -j KPNG-OLD')}`,
      );
      await family.repair();
      expect(await rules.saved()).not.toContain("KPNG-OLD");
    });

    test("a cleanup keeps only the chains that a user's chain jumps to, empty, and names them", async () => {
      const { rules, cleanUp } = await fresh(variant);
      await rules.start().syncView(whole);
      await rules.run(jumpFromUser);
      const { exitCode, stderr } = await cleanUp();
      expect([exitCode, stderr]).toEqual([1, expect.stringContaining("[CHAINS_IN_USE]")]);
      expect(stderr).toContain(`${apiChain} (from USER)`);
      const left = (await rules.saved()).split("\n").filter((line) => line.includes("KPNG"));
      expect(left).toEqual([expect.stringContaining(`:${apiChain} `), `-A USER -j ${apiChain}`]);
    });
  });
});
