import { readFileSync } from "node:fs";
import { join } from "node:path";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { createLog } from "@kpng/process/log.ts";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import { expect, test } from "vitest";
import { removeTables } from "./redirect-entry.ts";

test("a cleanup that fails tries every family, and says so", async () => {
  const folder = useScripts({ nft: 'echo called >> "$0.calls"; echo not permitted >&2; exit 1' });
  await expect(removeTables("kpng-user", createLog("off"))).rejects.toThrow(/\[ENTRY_FAILED\].*not permitted/);
  expect(readFileSync(join(folder, "nft.calls"), "utf8")).toBe("called\n".repeat(nodeFamilies().length));
});
