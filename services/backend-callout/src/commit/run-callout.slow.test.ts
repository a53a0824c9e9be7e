import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CalloutError } from "./program-files.ts";
import { type CalloutOptions, runCallout } from "./run-callout.ts";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-run-callout-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a shell script and returns its output. */
async function runScript(
  script: string,
  options: Partial<CalloutOptions> = {},
): Promise<{ readonly stdout: string; readonly stderr: string; readonly droppedBytes: number }> {
  const path = join(folder, `output-${Math.random()}`);
  const outputFd = openSync(path, "w+");
  const base = {
    program: "sh",
    args: ["-c", script, "sh"],
    env: process.env,
    input: ["line 1\n", "line 2\n"],
    timeoutMs: 20_000,
  };
  const { tail: stderr, droppedBytes } = await runCallout({ ...base, outputFd, ...options });
  return { stdout: readFileSync(path, "utf8"), stderr, droppedBytes };
}

async function failureOf(run: Promise<unknown>): Promise<CalloutError> {
  const error = await run.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof CalloutError) return error;
  throw new Error("expected a CalloutError", { cause: error });
}

test.each([
  { name: "reads its standard input", script: "cat" },
  { name: "opens /dev/stdin", script: "cat /dev/stdin" },
  { name: "opens /dev/stdin and /dev/stdout by name", script: "cat < /dev/stdin > /dev/stdout" },
])("a program that $name gets the whole input", async ({ script }) => {
  expect((await runScript(script)).stdout).toBe("line 1\nline 2\n");
});

test("the program gets its arguments and its variables", async () => {
  const options = {
    args: ["-c", 'echo "$1 $KPNG_NODE_NAME $HOME"', "sh", "a b"],
    env: { PATH: process.env.PATH, KPNG_NODE_NAME: "n1" },
  };
  expect((await runScript("", options)).stdout).toBe("a b n1 \n");
});

test("standard error is returned, whether written to the stream or to /dev/stderr", async () => {
  expect((await runScript("echo one >&2; echo two >> /dev/stderr")).stderr).toBe("one\ntwo");
});

test("the last 4 KiB of a long standard error are returned, with the number of bytes before them", async () => {
  const { stderr, droppedBytes } = await runScript("i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done");
  expect(stderr.length).toBeLessThanOrEqual(4096);
  expect(stderr.endsWith("line 1999")).toBe(true);
  // 10 lines of 7 bytes, 90 of 8, 900 of 9 and 1000 of 10.
  expect(droppedBytes).toBe(18_890 - 4096);
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

test("the error for a non-zero exit status contains the status and standard error", async () => {
  const error = await failureOf(runScript("echo no such table >&2; exit 3"));
  expect(error.message).toBe("[PROGRAM_FAILED] sh failed with exit status 3: no such table");
});

test("a path or a name without a program is PROGRAM_MISSING", async () => {
  for (const program of ["/no/such/program", "no-such-program"]) {
    const error = await failureOf(runScript("", { program }));
    expect(error).toMatchObject({ code: "PROGRAM_MISSING", message: `[PROGRAM_MISSING] ${program} cannot be started` });
    expect(String(error.cause)).toContain("ENOENT");
  }
});

test("the error for a script with Windows line endings hints at the CR", async () => {
  const program = join(folder, "script");
  writeFileSync(program, "#!/bin/sh\r\nexit 0\r\n", { mode: 0o755 });
  expect((await failureOf(runScript("", { program }))).message).toContain("check for a CR");
});

test("a file that is not executable is PROGRAM_MISSING", async () => {
  const program = join(folder, "not-executable");
  writeFileSync(program, "", { mode: 0o644 });
  expect((await failureOf(runScript("", { program }))).code).toBe("PROGRAM_MISSING");
});

test("the error for a program that a signal killed names the signal", async () => {
  expect((await failureOf(runScript("kill -SEGV $$"))).message).toContain("[PROGRAM_KILLED] sh was killed by SIGSEGV");
});

test("a program that hangs is killed at the time limit, and the error contains its standard error", async () => {
  const error = await failureOf(runScript("echo waiting for a lock >&2; sleep 60", { timeoutMs: 300 }));
  expect(error.message).toBe(
    "[PROGRAM_TIMEOUT] sh exceeded the limit of 300 ms (--timeout) and was killed: waiting for a lock",
  );
});

test("a program that ignores SIGTERM is killed with its process group", async () => {
  const pidFile = join(folder, "pids");
  const script = `trap '' TERM; sleep 61 & echo $! > ${pidFile}; echo $$ >> ${pidFile}; while :; do sleep 62; done`;
  await failureOf(runScript(script, { timeoutMs: 300 }));
  for (const pid of readFileSync(pidFile, "utf8").trim().split("\n").map(Number)) {
    // The kernel ends the process some time after the signal.
    while (isRunning(pid)) await new Promise(setImmediate);
  }
});

test("a successful run does not wait for background processes, and does not kill them", async () => {
  const { stdout } = await runScript("sleep 63 & echo $!");
  const pid = Number(stdout);
  expect(isRunning(pid)).toBe(true);
  process.kill(pid, "SIGKILL");
});

test("a background process keeps its standard error after a successful run", async () => {
  const written = join(folder, "written");
  const { stdout } = await runScript(
    `(while ! test -e ${written}.go; do sleep 0.02; done; head -c 200000 /dev/zero >&2 && touch ${written}) & echo $!`,
  );
  writeFileSync(`${written}.go`, "");
  // 200 000 bytes do not fit into a pipe: the process would wait without end for a reader.
  while (isRunning(Number(stdout))) await new Promise(setImmediate);
  expect(existsSync(written)).toBe(true);
});

/** A zombie counts as ended. */
function isRunning(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
