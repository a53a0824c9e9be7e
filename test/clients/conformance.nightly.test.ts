import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { describe, expect, test, vi } from "vitest";
import { runConformance } from "../conformance/protocol/run-conformance.ts";
import { languages } from "./toolchains.ts";

// Three quarters of a minute for each client: some cases wait for delays of the protocol.
vi.setConfig({ testTimeout: 600_000 });

describe.concurrent.each(languages)("the client in $name", ({ find }) => {
  test("passes kpng conformance protocol", async ({ skip }) => {
    const found = await find();
    if (found.kind === "missing") return skip(found.reason);
    const { env = {}, conformance } = found.toolchain;
    const assignments = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    const backend = ["env", ...assignments, ...(await conformance(temporaryFolder()))];
    const { code, lines, failed } = await runConformance(["--report", "stdout"], backend);
    expect({ code, failed }).toEqual({ code: 0, failed: [] });
    // The clients do not request Batches.
    expect(lines.filter(({ kind }) => kind === "not-applicable").map(({ id }) => id)).toEqual(["C10"]);
  });
});
