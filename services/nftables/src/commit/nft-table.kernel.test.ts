import { fileURLToPath } from "node:url";
import { families } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { describePackets, useLaboratory } from "../../../../test/kernel/describe-packets.ts";

const driver = fileURLToPath(new URL("../testing/drive-table.ts", import.meta.url));
describePackets("the table in the kernel", () => {
  const laboratory = useLaboratory();

  test.each(families)(
    "%s: what is sent is installed, a repetition changes nothing, drift is repaired",
    async (family) => {
      await laboratory().add(family);
      const { exitCode, stderr } = await laboratory().tryRun(family, [process.execPath, driver, family]);
      expect(exitCode, stderr).toBe(0);
    },
  );

  test("a table is read and compared while another program changes its own without a pause", async () => {
    await laboratory().add("nft-beside");
    const reader = fileURLToPath(new URL("../testing/read-beside-changes.ts", import.meta.url));
    const { wrong, changes } = JSON.parse(await laboratory().run("nft-beside", [process.execPath, reader, "300", "3"]));
    expect(wrong).toEqual([0, 0, 0]);
    // At least one change during each of the three reads.
    expect(changes).toBeGreaterThan(3);
  });

  test("the first load and a change of all Services fit a small socket buffer, and a restart finds nothing to do", async () => {
    await laboratory().add("nft-small");
    const loader = fileURLToPath(new URL("../testing/load-table.ts", import.meta.url));
    const { limit, first, all, again } = JSON.parse(
      await laboratory().run("nft-small", [process.execPath, loader, "1500", "100000"]),
    );
    expect(limit).toBe(100_000);
    // 2 ports × (frontend + 5 slots), and two elements for the chains that pick.
    expect(first).toBe(1_500 * 12 + 2);
    // For each of two ports: a slot more, and the frontend deleted and put with the new count; one chain for it.
    expect(all).toBe(1_500 * 6 + 1);
    expect(again).toBe(0);
  });
});
