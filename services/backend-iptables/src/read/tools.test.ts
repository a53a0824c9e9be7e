import { createReadableLog } from "@kpng/backend-kit/testing/steps.ts";
import { expect, test } from "vitest";
import { openTools, type RunTool } from "./tools.ts";

/** Runs no program: prints a version for each. */
const programs =
  (versions: Readonly<Record<string, string>>): RunTool =>
  async ([name = ""]) => {
    const version = versions[name];
    return version === undefined
      ? { exitCode: 127, stdout: "", stderr: "not found" }
      : { exitCode: 0, stdout: `${name} ${version}\n`, stderr: "" };
  };

test("a version of iptables that is too old is an error", async () => {
  await expect(openTools("nft", programs({ "iptables-nft": "v1.4.21" }), createReadableLog().log)).rejects.toThrow(
    "[IPTABLES_MISSING] iptables-nft has version 1.4.21; at least 1.6.2 is required",
  );
});

test("without ip6tables, only IPv4 is served, and the log says why", async () => {
  const log = createReadableLog();
  const opened = await openTools("nft", programs({ "iptables-nft": "v1.8.9 (nf_tables)" }), log.log);
  expect(opened.map(({ family, variant }) => [family, variant])).toEqual([["v4", "nft"]]);
  expect(log.lines).toContainEqual(
    expect.objectContaining({ msg: "no Services are served in this IP family", family: "v6" }),
  );
});
