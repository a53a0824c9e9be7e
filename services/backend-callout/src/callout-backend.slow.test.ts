import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { putService, readCapture, reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import { type Answer, playWatcher, silence } from "@kpng/backend-kit/testing/played-watcher.ts";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { afterAll, beforeAll, expect, test } from "vitest";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-callout-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

const main = new URL("main.ts", import.meta.url);

/** Answers each request with the next batch, and then leaves requests unanswered. */
function inTurn(...batches: Awaited<ReturnType<Answer>>[]): Answer {
  return (asked) => batches[asked.index] ?? silence(asked);
}

const expected = readFileSync(
  new URL("../../../test/fixtures/kpng/kpng-json.host-not-a-node.ndjson", import.meta.url),
  "utf8",
).trimEnd();

test("without --callout the view is printed, as by the original", async () => {
  await using watcher = await playWatcher(inTurn(readCapture("local-nX")));
  const program = startProgram(main, ["--api", watcher.address, "--once"]);
  expect(await program.ended).toBe(0);
  expect(program.stdout().trimEnd()).toBe(expected);
});

test("CALLOUT names the program; it gets node and revision, and its output is printed", async () => {
  await using watcher = await playWatcher(inTurn([reset, putService("a/web"), sync(7n)]));
  const path = script("told", 'echo "$KPNG_NODE_NAME $KPNG_REVISION $1 $(wc -l)"');
  const args = ["--api", watcher.address, "--once", "--node-name", "n1", "--callout-arg", "x y"];
  const program = startProgram(main, args, { CALLOUT: path });
  expect(await program.ended).toBe(0);
  expect(program.stdout()).toBe("n1 7 x y 1\n");
});

test("a failed run is repeated until it succeeds", async () => {
  await using watcher = await playWatcher(inTurn([reset, putService("a/web"), sync()]));
  const flag = join(folder, "flag");
  const path = script("fails", `test -e ${flag} || { echo no flag >&2; exit 4; }`);
  const args = ["--api", watcher.address, "--callout", path, "--error-delay", "50ms"];
  const program = startProgram(main, [...args, "--log-level", "debug"]);
  await program.said("no flag");
  expect(program.stderr()).toContain("[PROGRAM_FAILED]");
  expect(program.stderr()).toContain("exit status 4: no flag");
  writeFileSync(flag, "");
  await program.said("sync complete");
  program.stop();
  expect(await program.ended).toBe(0);
});

test("changes during a run lead to one later run", async () => {
  const go = join(folder, "go");
  const batches: Awaited<ReturnType<Answer>>[] = [[reset, putService("a/1"), sync(1n)]];
  for (let i = 2; i <= 5; i++) batches.push([putService(`a/${i}`), sync(BigInt(i))]);
  await using watcher = await playWatcher(inTurn(...batches));
  const path = script("slow", `wc -l; while ! test -e ${go}; do sleep 0.02; done`);
  const program = startProgram(main, ["--api", watcher.address, "--callout", path]);
  await program.printed("1\n");
  await watcher.untilAsked(6);
  writeFileSync(go, "");
  await program.printed("1\n5\n");
  program.stop();
  expect(await program.ended).toBe(0);
  expect(program.stdout()).toBe("1\n5\n");
});

test("a run completes after SIGTERM, and a second SIGTERM kills it", async () => {
  for (const signals of [1, 2]) {
    const [started, done] = [join(folder, `started-${signals}`), join(folder, `done-${signals}`)];
    const go = join(folder, `end-${signals}`);
    await using watcher = await playWatcher(inTurn([reset, sync()]));
    const path = script(
      `long-${signals}`,
      `echo $$ > ${started}; while ! test -e ${go}; do sleep 0.02; done; echo > ${done}`,
    );
    const program = startProgram(main, ["--api", watcher.address, "--callout", path]);
    while (!existsSync(started) || readFileSync(started, "utf8") === "") await new Promise(setImmediate);
    program.stop();
    // The end of the stream shows that the first signal has been handled.
    while (!watcher.asked[0]?.signal.aborted) await new Promise(setImmediate);
    if (signals === 1) writeFileSync(go, "");
    expect(await (signals === 1 ? program.ended : program.endedAtOnce())).toBe(signals === 2 ? 130 : 0);
    expect(existsSync(done)).toBe(signals === 1);
    const pid = readFileSync(started, "utf8").trim();
    while (existsSync(`/proc/${pid}/exe`)) await new Promise(setImmediate);
  }
});

test("standard error is a pipe, and the log has its end and the number of bytes dropped before", async () => {
  await using watcher = await playWatcher(inTurn([reset, sync()]));
  const path = script("floods", "head -c 1000000 /dev/zero | tr '\\0' x >&2; stat -Lc %F /dev/stderr");
  const program = startProgram(main, ["--api", watcher.address, "--once", "--callout", path]);
  expect(await program.ended).toBe(0);
  expect(program.stdout()).toBe("fifo\n");
  expect(program.stderr()).toContain(`"stderr":"${"x".repeat(4096)}","droppedBytes":${1_000_000 - 4096}`);
});

test("the program inherits the environment except credentials of kpng", async () => {
  const environment = await inheritedBy("inherits-all");
  expect(environment).toMatchObject({ SOME_SETTING: "1", KUBECONFIG: "/k", PATH: process.env.PATH });
  for (const name of Object.keys(credentials)) expect(environment).not.toHaveProperty(name);
});

const credentials = {
  OTEL_EXPORTER_OTLP_HEADERS: "authorization=secret",
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: "authorization=secret",
  OTEL_EXPORTER_OTLP_CLIENT_KEY: "/key",
  KPNG_API_TLS_KEY: "/key",
  KPNG_API_TOKEN: "secret",
};

/** Runs kpng-callout with credentials and settings in its environment; returns the environment of its program. */
async function inheritedBy(name: string): Promise<Record<string, string>> {
  await using watcher = await playWatcher(inTurn([reset, sync()]));
  const path = script(name, "cat /proc/$$/environ");
  const program = startProgram(main, ["--api", watcher.address, "--once", "--node-name", "n1", "--callout", path], {
    ...credentials,
    HOME: "/h",
    SOME_SETTING: "1",
    KUBECONFIG: "/k",
  });
  if ((await program.ended) !== 0) throw new Error(program.stderr());
  const variables = program
    .stdout()
    .split("\0")
    .filter((text) => text !== "");
  return Object.fromEntries(variables.map((text) => text.split(/=(.*)/s).slice(0, 2)));
}

test("a process that left the session is killed at the time limit, unless the log says that it survives", async () => {
  await using watcher = await playWatcher(inTurn([reset, sync()]));
  const pidFile = join(folder, "session");
  // A run that the limit ends before it has written the file is repeated.
  const leave = `setsid sleep 66 & echo $! > ${pidFile}.new; mv ${pidFile}.new ${pidFile}; wait`;
  const path = script("leaves-session", `test -e ${pidFile} || { ${leave}; }`);
  const args = ["--api", watcher.address, "--callout", path, "--timeout", "1s", "--error-delay", "50ms"];
  const program = startProgram(main, args);
  while (!existsSync(pidFile)) await new Promise(setImmediate);
  const pid = Number(readFileSync(pidFile, "utf8"));
  if (program.stderr().includes("no cgroup for the program")) process.kill(pid, "SIGKILL");
  while (existsSync(`/proc/${pid}/exe`)) await new Promise(setImmediate);
  program.stop();
  expect(await program.ended).toBe(0);
});

function script(name: string, body: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  return path;
}
