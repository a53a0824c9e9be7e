import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, describe, expect, test, vi } from "vitest";
import { programFile } from "../../process/program-file.ts";
import { client, ours, runConformance } from "./run-conformance.ts";

vi.setConfig({ testTimeout: 600_000 });

// One folder for the file: what ends a concurrent test is not told apart.
const folder = temporaryFolder(afterAll);

describe.concurrent("kpng conformance protocol", () => {
  test("a client that was written from the rules passes", async () => {
    const { code, lines, failed } = await runConformance(["--report", "stdout"], client);
    expect({ code, failed }).toEqual({ code: 0, failed: [] });
    expect(lines.filter(({ kind }) => kind === "not-applicable").map(({ id }) => id)).toEqual(["C10", "C11a"]);
  });

  test("the kit passes: kpng-json, by its acknowledgements", async () => {
    const { code, lines, failed } = await runConformance([], [process.execPath, programFile("backend-json"), ...ours]);
    expect({ code, failed, kinds: new Set(lines.map(({ kind }) => kind)) }).toEqual({
      ...{ code: 0, failed: [], kinds: new Set(["passed"]) },
    });
  });

  test("a client that first reports the state that it has saved passes", async () => {
    const saved = JSON.stringify({ services: { "default/old": ["10.9.9.9"] } });
    const command = ["sh", "-c", 'echo "$1"; shift; exec "$@"', "sh", saved, ...client];
    const { code, failed } = await runConformance(["--report", "stdout", "--only", "C3a,C4a,C14"], command);
    expect({ code, failed }).toEqual({ code: 0, failed: [] });
  });

  test("a client passes of which a command says what it has applied", async () => {
    const file = join(folder, "applied");
    const command = ["sh", "-c", 'exec "$@" > "$0"', file, ...client];
    const options = ["--applied", `tail -n 1 ${file}`, "--only", "C3a,C4,C5a"];
    expect(await runConformance(options, command)).toMatchObject({ code: 0, failed: [], lines: { length: 4 } });
  });

  test("exceptions excuse the failures that they name, and must be needed", async () => {
    const path = join(folder, "exceptions");
    writeFileSync(path, "# known\nC13 it has no handler yet\nC1 another node on purpose\n");
    const options = ["--report", "stdout", "--only", "C1,C13", "--exceptions", path];
    const { code, lines } = await runConformance(options, [...client, "fails-at-sigterm"]);
    expect(code).toBe(1);
    expect(lines.map(({ id, kind }) => `${id} ${kind}`)).toEqual(["C1 failed", "C13 excepted"]);
    expect(lines[0]?.reason).toContain("not needed any more");
  });
});
