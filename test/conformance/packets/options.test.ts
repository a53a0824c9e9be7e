import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { programFile } from "../../process/program-file.ts";

const folder = temporaryFolder(afterAll);
beforeAll(() => {
  writeFileSync(join(folder, "exceptions"), "scenario/none it is not there\n");
  const clusters = [{ name: "c", cluster: { server: "https://192.0.2.1:6443" } }];
  const contexts = [{ name: "c", context: { cluster: "c", user: "u" } }];
  const users = [{ name: "u", user: {} }];
  writeFileSync(join(folder, "config"), JSON.stringify({ clusters, contexts, users, "current-context": "c" }));
});

function packets(...args: readonly string[]) {
  return spawnSync(process.execPath, [programFile("cli"), "conformance", "packets", ...args], { encoding: "utf8" });
}

test.each([
  [["--", "./mine", "{nod}"], '"{nod}" has the placeholder {nod}; there are {node}'],
  [["--", "./mine", "--x={options}"], "{options} must be a word of its own"],
  [["--kubeconfig", "FOLDER/config", "--", "./mine", "{api}"], "has the placeholder {api}"],
  [["--kubeconfig", "FOLDER/config", "--", "./mine"], "https://192.0.2.1:6443/ is not on 127.0.0.1"],
  [["--only", "cleanup,", "--", "./mine"], "a name is empty"],
  [["--only", "scenaro", "--", "./mine"], 'there is no case "scenaro"'],
  [["--exceptions", "FOLDER/exceptions", "--", "./mine"], '"scenario/none" is neither a case nor a deviation'],
  [[], "the command that starts the backend is missing"],
])("%j is refused", (args, message) => {
  const { status, stderr, stdout } = packets(...args.map((word) => word.replace("FOLDER", folder)));
  expect({ status, stdout }).toEqual({ status: 1, stdout: "" });
  expect(JSON.parse(stderr.trim().split("\n").at(-1) ?? "").reason).toContain(message);
});

test("--list names the cases, and a whole name means one case alone", () => {
  expect(packets("--list").stdout.trimEnd().split("\n")).toHaveLength(packetCases.length);
  const { stdout } = packets("--list", "--only", "scenario/no-endpoint,update/the-backend");
  expect(stdout).toBe(
    "scenario/no-endpoint  no endpoint\nupdate/the-backend-restarts  the backend restarts, during traffic\n",
  );
});
