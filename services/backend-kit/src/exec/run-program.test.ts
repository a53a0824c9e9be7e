import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, expect, test } from "vitest";
import { describeEnd, type ProgramOptions, runProgram } from "./run-program.ts";

const folder = temporaryFolder(afterAll);

const sh = (script: string, options: Partial<ProgramOptions> = {}) =>
  runProgram(["sh", "-c", script], { timeoutMs: 20_000, ...options });

test("a program reads its standard input, and its output and exit status are returned", async () => {
  const end = await sh("cat; echo why >&2; exit 3", { stdin: "a\nb\n" });
  expect(end).toEqual({ kind: "exited", exitCode: 3, stdout: "a\nb\n", stderr: "why\n" });
  expect(describeEnd(end, 0)).toBe("exit 3");
});

test("a program that reads nothing of a large input is judged by its exit status", async () => {
  expect(await sh("exit 0", { stdin: "x".repeat(5_000_000) })).toMatchObject({ kind: "exited", exitCode: 0 });
});

test("output goes to the callback while it arrives", async () => {
  let text = "";
  const end = await sh("echo a; echo b", { stdout: (part) => (text += part) });
  expect([text, end]).toEqual(["a\nb\n", { kind: "exited", exitCode: 0, stdout: "", stderr: "" }]);
});

test("of a long standard error the end is kept", async () => {
  const end = await sh("yes no | head -c 100000 >&2; echo last >&2; exit 1");
  expect(end.kind === "exited" && end.stderr.length).toBe(4096);
  expect(end.kind === "exited" && end.stderr.endsWith("last\n")).toBe(true);
});

test("a program that does not exist is not started", async () => {
  const end = await runProgram(["/none"], { timeoutMs: 1_000 });
  expect(end).toMatchObject({ kind: "not-started", cause: { code: "ENOENT" } });
});

test("a program below a file is not started, although Node.js throws that error", async () => {
  const end = await runProgram(["/etc/passwd/x"], { timeoutMs: 1_000, stdin: "text" });
  expect(end).toMatchObject({ kind: "not-started", cause: { code: "ENOTDIR" } });
});

test("a program that another process kills is told from one that we stop", async () => {
  const end = await sh("kill -SEGV $$");
  expect(end).toMatchObject({ kind: "killed", signal: "SIGSEGV" });
  expect(describeEnd(end, 0)).toBe("killed by SIGSEGV");
});

test("a program that prints without end is stopped", async () => {
  const end = await sh("yes", { maxOutputBytes: 100_000 });
  expect(end).toMatchObject({ kind: "stopped", reason: "output" });
});

test("a program that exceeds its time is stopped with its children, although they hold its pipes", async () => {
  const pids = join(folder, "pids");
  const end = await sh(`sleep 61 & echo $! > ${pids}; echo waiting >&2; wait`, { timeoutMs: 300 });
  expect(end).toEqual({ kind: "stopped", reason: "timeout", stderr: "waiting\n" });
  expect(describeEnd(end, 300)).toBe("killed after 300 ms");
  // A zombie that waits for its parent has no program.
  while (existsSync(`/proc/${readFileSync(pids, "utf8").trim()}/exe`)) await new Promise(setImmediate);
});

test("a child in a session of its own does not delay the end of a program that is stopped", async () => {
  const pid = join(folder, "session");
  const end = await sh(`setsid sleep 62 & echo $! > ${pid}; wait`, { timeoutMs: 300 });
  expect(end).toMatchObject({ kind: "stopped", reason: "timeout" });
  process.kill(Number(readFileSync(pid, "utf8")), "SIGKILL");
});

test("with a grace period a program may end by SIGTERM in its own way, and no child outlives it", async () => {
  const [done, pid] = [join(folder, "done"), join(folder, "ignorant")];
  const child = `(trap '' TERM; exec sleep 63) & echo $! > ${pid}`;
  const end = await sh(`trap 'touch ${done}; exit' TERM; ${child}; wait`, { timeoutMs: 300, graceMs: 60_000 });
  expect([end.kind, existsSync(done)]).toEqual(["stopped", true]);
  while (existsSync(`/proc/${readFileSync(pid, "utf8").trim()}/exe`)) await new Promise(setImmediate);
});

test("an abort stops a program, and one that has aborted before starts none", async () => {
  const abort = new AbortController();
  const end = sh("echo go; sleep 64", { signal: abort.signal, stdout: () => abort.abort() });
  expect(await end).toMatchObject({ kind: "stopped", reason: "aborted" });
  expect(await sh("exit 0", { signal: abort.signal })).toMatchObject({ kind: "stopped", reason: "aborted" });
});
