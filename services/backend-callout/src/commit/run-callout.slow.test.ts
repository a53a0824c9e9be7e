import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, expect, test } from "vitest";
import { type CalloutOptions, runCallout } from "./run-callout.ts";

const folder = temporaryFolder(afterAll);

/** Runs a shell script and returns its output. */
async function runScript(script: string, options: Partial<CalloutOptions> = {}): Promise<{ readonly stdout: string }> {
  const path = join(folder, `output-${Math.random()}`);
  const outputFd = openSync(path, "w+");
  const base = {
    program: "sh",
    args: ["-c", script, "sh"],
    env: process.env,
    input: ["line 1\n", "line 2\n"],
    timeoutMs: 20_000,
  };
  await runCallout({ ...base, outputFd, ...options });
  return { stdout: readFileSync(path, "utf8") };
}

test.each([
  { name: "reads its standard input", script: "cat" },
  { name: "opens /dev/stdin", script: "cat /dev/stdin" },
  { name: "opens /dev/stdin and /dev/stdout by name", script: "cat < /dev/stdin > /dev/stdout" },
])("a program that $name gets the whole input", async ({ script }) => {
  expect((await runScript(script)).stdout).toBe("line 1\nline 2\n");
});

const fiftyMegabytes = function* (): Generator<string> {
  const line = `${"x".repeat(999)}\n`;
  for (let i = 0; i < 50_000; i++) yield line;
};

test("50 MB of input reach a program that writes all of it back", async () => {
  expect((await runScript("cat", { input: fiftyMegabytes() })).stdout.length).toBe(50_000_000);
});

test("a program that ignores 50 MB of input and exits with status 0 succeeds", async () => {
  expect((await runScript("exit 0", { input: fiftyMegabytes() })).stdout).toBe("");
});

test.each([
  { name: "another exit status", script: "exit 3", says: "(exit 3)" },
  { name: "the time limit", script: "sleep 60", options: { timeoutMs: 300 }, says: "(killed after 300 ms)" },
  { name: "no program", script: "", options: { program: "/no/such/program" }, says: "ENOENT" },
])("a run that ends by $name fails, and the error says so", async ({ script, options, says }) => {
  const failure = { code: "PROGRAM_FAILED", message: expect.stringContaining(says) };
  await expect(runScript(script, options)).rejects.toMatchObject(failure);
});

test("a successful run does not wait for background processes, and does not kill them", async () => {
  const { stdout } = await runScript("sleep 63 & echo $!");
  process.kill(Number(stdout), "SIGKILL");
});
