import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { createLog } from "@kpng/process/log.ts";
import { expect, onTestFinished, test, vi } from "vitest";
import { removeTables } from "./redirect-entry.ts";

test("a cleanup that fails tries every family, and says so", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-nft-"));
  onTestFinished(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  });
  const calls = join(folder, "calls");
  writeFileSync(join(folder, "nft"), `#!/bin/sh\necho called >>${calls}\necho not permitted >&2\nexit 1\n`);
  chmodSync(join(folder, "nft"), 0o755);
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
  await expect(removeTables("kpng-user", createLog("off"))).rejects.toThrow(/\[ENTRY_FAILED\].*not permitted/);
  expect(readFileSync(calls, "utf8")).toBe("called\n".repeat(nodeFamilies().length));
});
