import { fileURLToPath } from "node:url";
import { endpoint, service, view } from "@kpng/model/testing/views.ts";
import { describe, expect, test } from "vitest";
import { describePackets, useLaboratory } from "../../../../test/kernel/describe-packets.ts";
import { type KernelRules, kernelRules } from "../testing/kernel-rules.ts";

const main = fileURLToPath(new URL("../main.ts", import.meta.url));

const at = (address: string) =>
  endpoint(address, { ports: [{ name: "", port: 8080 }], use: { cluster: true, local: false } });
const web = (...addresses: readonly string[]) =>
  service("ns/web", { ips: ["10.96.0.10"], endpoints: addresses.map(at) });
const api = service("ns/api", { ips: ["10.96.3.11"], endpoints: [at("10.0.0.7")] });
const whole = view([web("10.0.1.1"), api]);

describePackets("rules of other programs", () => {
  const laboratory = useLaboratory();
  let count = 0;

  const fresh = async () => {
    const name = `net${count++}`;
    const rules = await kernelRules(laboratory(), name, "nft");
    const cleanUp = () => laboratory().tryRun(name, [process.execPath, main, "--cleanup"]);
    return { rules, cleanUp };
  };

  describe("a rule that only nft can print, in a table of iptables-nft", () => {
    const foreign = "nft add rule ip nat POSTROUTING oifname eth9 masquerade";
    const deleteForeign =
      "nft -a list chain ip nat POSTROUTING | sed -n 's/.*eth9.* handle //p' | xargs -I % nft delete rule ip nat POSTROUTING handle %";
    const jumps = (rules: KernelRules) => rules.run("nft list chain ip nat PREROUTING | grep -c KPNG-SERVICES");

    test("is named, nothing is inserted twice, and changes follow when it is moved", async () => {
      const { rules } = await fresh();
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
      const { rules, cleanUp } = await fresh();
      await rules.start().syncView(whole);
      await rules.run(foreign);
      const { exitCode, stderr } = await cleanUp();
      expect([exitCode, stderr]).toEqual([1, expect.stringContaining("[TABLE_INCOMPATIBLE]")]);
      await rules.run(deleteForeign);
      expect((await cleanUp()).exitCode).toBe(0);
      expect((await rules.saved()).includes("KPNG")).toBe(false);
    });
  });
});
