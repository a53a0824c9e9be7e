import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, describe, expect, test, vi } from "vitest";
import { programFile } from "../../process/program-file.ts";
import { faults } from "./faults.ts";
import { client, ours, runConformance } from "./run-conformance.ts";

vi.setConfig({ testTimeout: 600_000, maxConcurrency: 4 });

// One folder for the file: what ends a concurrent test is not told apart.
const folder = temporaryFolder(afterAll);

/** A program for kpng-callout that prints what its input says. */
function reporter(): string {
  const text = `#!${process.execPath}
const services = {};
for (const line of require("node:fs").readFileSync(0, "utf8").split("\\n").filter(Boolean)) {
  const { Service, Endpoints } = JSON.parse(line);
  const addresses = (Endpoints ?? []).flatMap(({ IPs: { V4 = [], V6 = [] } }) => [...V4, ...V6]);
  services[Service.Namespace + "/" + Service.Name] = addresses.sort();
}
console.log(JSON.stringify({ services }));
`;
  const file = join(folder, "report.cjs");
  writeFileSync(file, text, { mode: 0o755 });
  return file;
}

describe.concurrent("kpng conformance protocol", () => {
  test("the kit passes: kpng-callout, by what its program is given", async () => {
    const backend = [process.execPath, programFile("backend-callout"), "--callout", reporter(), ...ours];
    const { code, failed } = await runConformance(["--report", "stdout"], backend);
    expect({ code, failed }).toEqual({ code: 0, failed: [] });
  });

  test.for(Object.entries(faults))("a backend that %s is found by the cases of rule %s", async ([fault, rule]) => {
    const options = ["--report", "stdout", "--timeout", "5s", "--only", rule];
    const { code, failed } = await runConformance(options, [...client, fault]);
    expect(code).toBe(1);
    expect(failed.map(({ id }) => id.replace(/[a-z]$/, ""))).toContain(rule);
    expect(failed[0]?.reason).not.toBe("");
  });
});
