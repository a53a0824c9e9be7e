import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CalloutError } from "./callout-error.ts";
import { type CalloutOptions, runCallout } from "./run-callout.ts";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-run-callout-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a shell script and returns what it wrote. */
async function runScript(
  script: string,
  options: Partial<CalloutOptions> = {},
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const path = join(folder, `output-${Math.random()}`);
  const outputFd = openSync(path, "w+");
  const base = {
    program: "sh",
    args: ["-c", script, "sh"],
    env: {},
    input: ["line 1\n", "line 2\n"],
    timeoutMs: 20_000,
  };
  const stderr = await runCallout({ ...base, outputFd, ...options });
  return { stdout: readFileSync(path, "utf8"), stderr };
}

async function failureOf(run: Promise<unknown>): Promise<CalloutError> {
  const error = await run.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof CalloutError) return error;
  throw new Error("it did not fail as it should", { cause: error });
}

test.each([
  { name: "reads its standard input", script: "cat" },
  { name: "opens /dev/stdin", script: "cat /dev/stdin" },
  { name: "opens /dev/stdin and /dev/stdout by name", script: "cat < /dev/stdin > /dev/stdout" },
])("a program that $name gets all lines", async ({ script }) => {
  expect((await runScript(script)).stdout).toBe("line 1\nline 2\n");
});

test("arguments and variables reach the program, beside our own", async () => {
  const options = {
    args: ["-c", 'echo "$1 $KPNG_NODE_NAME $PATH"', "sh", "a b"],
    env: { KPNG_NODE_NAME: "n1" },
  };
  expect((await runScript("", options)).stdout).toBe(`a b n1 ${process.env.PATH}\n`);
});

test("what it writes to its standard error is kept, by any way it takes", async () => {
  expect((await runScript("echo one >&2; echo two >> /dev/stderr")).stderr).toBe("one\ntwo");
});

test("of much standard error the end is kept", async () => {
  const { stderr } = await runScript("i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done");
  expect(stderr.length).toBeLessThanOrEqual(4096);
  expect(stderr.endsWith("line 1999")).toBe(true);
});

const fiftyMegabytes = function* (): Generator<string> {
  const line = `${"x".repeat(999)}\n`;
  for (let i = 0; i < 50_000; i++) yield line;
};

test("50 MB of input reach a program that writes all of it back", async () => {
  expect((await runScript("cat", { input: fiftyMegabytes() })).stdout.length).toBe(50_000_000);
});

test("a program that ignores 50 MB of input and exits with 0 succeeded", async () => {
  expect((await runScript("exit 0", { input: fiftyMegabytes() })).stdout).toBe("");
});

test("a non-zero exit is a failure with its code and its words", async () => {
  const error = await failureOf(runScript("echo no such table >&2; exit 3"));
  expect(error.message).toBe("[PROGRAM_FAILED] sh failed (exit 3): no such table");
});

test("a program that is not there is a failure, by path and by name", async () => {
  for (const program of ["/no/such/program", "no-such-program"]) {
    const error = await failureOf(runScript("", { program }));
    expect(error).toMatchObject({ code: "PROGRAM_MISSING", message: `[PROGRAM_MISSING] ${program} cannot be started` });
    expect(String(error.cause)).toContain("ENOENT");
  }
});

test("a script with the line ends of Windows is a failure that says what is missing", async () => {
  const program = join(folder, "script");
  writeFileSync(program, "#!/bin/sh\r\nexit 0\r\n", { mode: 0o755 });
  expect((await failureOf(runScript("", { program }))).message).toContain("without a CR");
});

test("a file that cannot be executed is a failure", async () => {
  const program = join(folder, "not-executable");
  writeFileSync(program, "", { mode: 0o644 });
  expect((await failureOf(runScript("", { program }))).code).toBe("PROGRAM_MISSING");
});

test("a program that a signal killed is a failure that names the signal", async () => {
  expect((await failureOf(runScript("kill -SEGV $$"))).message).toContain("[PROGRAM_KILLED] sh was killed by SIGSEGV");
});

test("a program that hangs without reading is killed when its time is up, with its words", async () => {
  const error = await failureOf(runScript("echo waiting for a lock >&2; sleep 60", { timeoutMs: 300 }));
  expect(error.message).toBe("[PROGRAM_TIMEOUT] sh took longer than 300 ms and was killed: waiting for a lock");
});

test("a program that ignores SIGTERM is killed with all that it started", async () => {
  const pidFile = join(folder, "pids");
  const script = `trap '' TERM; sleep 61 & echo $! > ${pidFile}; echo $$ >> ${pidFile}; while :; do sleep 62; done`;
  await failureOf(runScript(script, { timeoutMs: 300 }));
  for (const pid of readFileSync(pidFile, "utf8").trim().split("\n").map(Number)) {
    // The signal is sent; the kernel ends the process a moment later.
    while (isRunning(pid)) await new Promise(setImmediate);
  }
});

test("what a program that succeeded left in the background runs on, and nobody waits for it", async () => {
  const { stdout } = await runScript("sleep 63 & echo $!");
  const pid = Number(stdout);
  expect(isRunning(pid)).toBe(true);
  process.kill(pid, "SIGKILL");
});

/** A zombie that only waits for its parent counts as ended. */
function isRunning(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
