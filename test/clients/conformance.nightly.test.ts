import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, describe, expect, test, vi } from "vitest";
import { runConformance } from "../conformance/protocol/run-conformance.ts";
import { languages } from "./toolchains.ts";

// Three quarters of a minute for each client: some cases wait for delays of the protocol.
vi.setConfig({ testTimeout: 600_000 });

// One folder for the file: what ends a concurrent test is not told apart.
const folder = temporaryFolder(afterAll);

describe.concurrent.each(languages)("the client in $name", ({ find }) => {
  test("passes kpng conformance protocol", async ({ skip }) => {
    const found = await find();
    if (found.kind === "missing") return skip(found.reason);
    const { env = {}, conformance } = found.toolchain;
    const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    const backend = ["env", ...assignments, ...(await conformance(mkdtempSync(join(folder, "client-"))))];
    const { code, lines, failed } = await runConformance(["--report", "stdout"], backend);
    expect({ code, failed }).toEqual({ code: 0, failed: [] });
    // The clients do not request Batches.
    expect(lines.filter(({ kind }) => kind === "not-applicable").map(({ id }) => id)).toEqual(["C10"]);
  });
});
