import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { families } from "@kpng/model/address.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";

const driver = fileURLToPath(new URL("../testing/drive-table.ts", import.meta.url));
const frontends = {
  v4: ["10.96.0.2 . tcp . 443", "10.96.0.2 . tcp . 80", "10.96.0.3 . tcp . 443", "10.96.0.3 . tcp . 80"],
  v6: ["fd00:96::2 . tcp . 443", "fd00:96::2 . tcp . 80", "fd00:96::3 . tcp . 443", "fd00:96::3 . tcp . 80"],
} as const;

describePackets("the table in the kernel", () => {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
  });
  afterAll(() => laboratory.close());

  test.each(families)(
    "%s: what is sent is installed, a repetition changes nothing, drift is repaired",
    async (family) => {
      await laboratory.add(family);
      const seen = JSON.parse(await laboratory.run(family, [process.execPath, driver, family]));
      const keys = seen.frontends.map((text: string) => text.split(" comment ")[0]?.split(" : ")[0]);
      expect(keys).toEqual(frontends[family]);
      expect(seen.frontends[0]).toContain('comment "ns/web-1:p443"');
      // Chains for 2 and for 3 endpoints.
      expect(seen.chainCommits).toBe(1);
      // 2 × 3 endpoints of web, and the port of sticky without affinity.
      expect(seen.slots).toBe(8);
      expect(seen.again).toEqual({ elements: 0, chains: [] });
      expect(seen.restartAgain.elements).toBe(0);
      // For each of two ports: the slot and its endpoint, the frontend deleted and put with the new count.
      expect(seen.shrunk).toEqual({ elements: 6, chains: [] });
      expect(seen.noDrift).toEqual({ elements: 0, chains: [] });
      expect(seen.ownChange).toEqual({ elements: 0, chains: [] });
      // An unchanged generation of the ruleset proves that no program has changed it.
      expect(seen.readsAfterOwnChange).toBe(0);
      // The first names the generation from before the other program's change, and is sent again without one.
      expect(seen.sentByChange).toEqual([2, 1, 1]);
      expect(seen.lostElements).toEqual({ elements: 4, chains: [] });
      expect(seen.putBack[0]).toContain('comment "ns/web-1:p443"');
      expect(seen.lostRules).toEqual({ elements: 0, chains: ["services"] });
      expect(seen.lostBeforeNewRules).toEqual(["services"]);
      expect(seen.changedRule).toEqual({ elements: 0, chains: ["mark_masquerade"] });
      expect(seen.foreignRange.elements).toBe(0);
      expect(seen.foreignRange.chains).toContainEqual(expect.stringMatching(/^ranges_/));
      expect(seen.rangesAfter).toContain(
        family === "v6" ? "elements = { 2001:db8::/32 }" : "elements = { 192.0.2.0/24 }",
      );
      expect(seen.dormant.chains).toContain("nat_prerouting");
      expect(seen.dropping).toEqual({ elements: 0, chains: ["filter_forward"] });
      expect(seen.stateAfter).not.toMatch(/dormant|policy drop/);
      expect(seen.knownBefore).toBe(true);
      expect(seen.flushedInLoad).toEqual({ isKnown: false, chains: ["check"], isRepaired: true });
      expect(seen.flushedInSync).toEqual({ isKnown: false, chains: ["sticky_pick_4"], isRepaired: true });
      expect(seen.isForeignSeen).toBe(true);
      expect(seen.lostTable).toBeGreaterThan(10);
      expect(seen.repaired).toHaveLength(4);
      expect(seen.blocked).toMatch(/^\[COMMIT_REJECTED\] .*busy/s);
      expect(seen.left).toBeNull();
      expect(seen.refusal).toContain("put in set picks: ENOENT");
      expect(seen.foreign).toContain("exists without the chain kpng_layout_1");
      expect(seen.listing).toContain(`comment "${"n".repeat(63)}/${"s".repeat(61)}-4"`);
      expect(seen.closed).toMatch(/^\[NETLINK_UNAVAILABLE\] .*closed/);
    },
  );

  test("a table is read and compared while another program changes its own without a pause", async () => {
    await laboratory.add("nft-beside");
    const reader = fileURLToPath(new URL("../testing/read-beside-changes.ts", import.meta.url));
    const { wrong, changes } = JSON.parse(await laboratory.run("nft-beside", [process.execPath, reader, "300", "3"]));
    expect(wrong).toEqual([0, 0, 0]);
    // At least one change during each of the three reads.
    expect(changes).toBeGreaterThan(3);
  });

  test("the first load and a change of all Services fit a small socket buffer, and a restart finds nothing to do", async () => {
    await laboratory.add("nft-small");
    const loader = fileURLToPath(new URL("../testing/load-table.ts", import.meta.url));
    const { limit, first, all, again } = JSON.parse(
      await laboratory.run("nft-small", [process.execPath, loader, "1500", "100000"]),
    );
    expect(limit).toBe(100_000);
    // 2 ports × (frontend + 5 slots), and two elements for the chains that pick.
    expect(first).toBe(1_500 * 12 + 2);
    // For each of two ports: a slot more, and the frontend deleted and put with the new count; one chain for it.
    expect(all).toBe(1_500 * 6 + 1);
    expect(again).toBe(0);
  });
});
