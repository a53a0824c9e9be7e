import { fileURLToPath } from "node:url";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { expect, test } from "vitest";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";

const driver = fileURLToPath(new URL("../testing/drive-slow-link.ts", import.meta.url));

describePackets("a link that is slower than a client", () => {
  test("makes at most 256 KiB of datagrams wait in this process, and drops the others", async () => {
    await using laboratory = await Laboratory.open();
    await laboratory.add("slow");
    const sent = Number(await laboratory.run("slow", [process.execPath, driver]));
    // Besides, up to 208 KiB wait in the kernel (net.core.wmem_default), and there are headers.
    expect(sent).toBeGreaterThan(262_144);
    expect(sent).toBeLessThan(600_000);
  });
});
