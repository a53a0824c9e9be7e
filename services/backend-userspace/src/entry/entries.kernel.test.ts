import { fileURLToPath } from "node:url";
import { families } from "@kpng/model/address.ts";
import { expect, test } from "vitest";
import { describePackets, useLaboratory } from "../../../../test/kernel/describe-packets.ts";

const driver = fileURLToPath(new URL("../testing/drive-entries.ts", import.meta.url));

describePackets("entries in the kernel", () => {
  const laboratory = useLaboratory();

  test.each(families)(
    "%s: what is published is installed, changes by other programs are repaired, and nothing is left",
    async (family) => {
      await laboratory().add(`entry-${family}`);
      const seen = JSON.parse(await laboratory().run(`entry-${family}`, [process.execPath, driver, family]));
      expect(seen).toEqual({
        place: family === "v4" ? "192.0.2.1" : "2001:db8::1",
        installed: [],
        captured: [true, true],
        notCaptured: [false, false, false],
        changed: [],
        lostElements: ["elements of frontends differ"],
        lostRules: ["chains or rules differ"],
        // The rules and four sets with elements: the frontends, node ports, verdicts and local ports.
        lostTable: 6,
        repaired: [],
        refusedDelete: "ENTRY_FAILED",
        afterwards: [],
        left: "",
        chosen: ["RedirectEntry"],
        chosenLeft: "",
      });
    },
  );
});
