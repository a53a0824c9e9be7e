import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inTurn, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { putService, readCapture, reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, expect, test } from "vitest";

const folder = temporaryFolder(afterAll);

const main = new URL("main.ts", import.meta.url);

const expected = readFileSync(
  new URL("../../../test/fixtures/kpng/kpng-json.host-not-a-node.ndjson", import.meta.url),
  "utf8",
).trimEnd();

test("without --callout the view is printed, as by the original", async () => {
  await using watcher = await startFakeWatcher(inTurn(readCapture("local-nX")));
  const program = startProgram(main, ["--api", watcher.address, "--once"]);
  expect(await program.ended).toBe(0);
  expect(program.stdout().trimEnd()).toBe(expected);
});

test("CALLOUT names the program; it gets node and revision, and its output is printed", async () => {
  await using watcher = await startFakeWatcher(inTurn([reset, putService("a/web"), sync(7n)]));
  const path = script("told", 'echo "$KPNG_NODE_NAME $KPNG_REVISION $1 $(wc -l)"');
  const args = ["--api", watcher.address, "--once", "--node-name", "n1", "--callout-arg", "x y"];
  const program = startProgram(main, args, { CALLOUT: path });
  expect(await program.ended).toBe(0);
  expect(program.stdout()).toBe("n1 7 x y 1\n");
});

test("with --callout-input plan, the program reads a whole plan as kpng-plan prints it", async () => {
  await using watcher = await startFakeWatcher(inTurn([reset, putService("a/web"), sync(7n)]));
  const program = startProgram(main, ["--api", watcher.address, "--once", "--callout-input", "plan"]);
  expect(await program.ended).toBe(0);
  const kinds = program
    .stdout()
    .trimEnd()
    .split("\n")
    .map((line) => Object.keys(JSON.parse(line))[0]);
  expect(kinds).toEqual(["reset", "node", "node", "service", "service", "sync"]);
});

test("a run completes after SIGTERM, and a second SIGTERM kills it", async () => {
  for (const signals of [1, 2]) {
    const [started, done] = [join(folder, `started-${signals}`), join(folder, `done-${signals}`)];
    const go = join(folder, `end-${signals}`);
    await using watcher = await startFakeWatcher(inTurn([reset, sync()]));
    const path = script(
      `long-${signals}`,
      `echo $$ > ${started}; while ! test -e ${go}; do sleep 0.02; done; echo > ${done}`,
    );
    const program = startProgram(main, ["--api", watcher.address, "--callout", path]);
    while (!existsSync(started) || readFileSync(started, "utf8") === "") await new Promise(setImmediate);
    program.stop();
    // The end of the stream shows that the first signal has been handled.
    while (!watcher.received[0]?.signal.aborted) await new Promise(setImmediate);
    if (signals === 1) writeFileSync(go, "");
    expect(await (signals === 1 ? program.ended : program.endedAtOnce())).toBe(signals === 2 ? 130 : 0);
    expect(existsSync(done)).toBe(signals === 1);
    const pid = readFileSync(started, "utf8").trim();
    while (existsSync(`/proc/${pid}/exe`)) await new Promise(setImmediate);
  }
});

test("the program inherits the environment except credentials of kpng", async () => {
  const credentials = {
    OTEL_EXPORTER_OTLP_HEADERS: "authorization=secret",
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: "authorization=secret",
    OTEL_EXPORTER_OTLP_CLIENT_KEY: "/key",
    KPNG_API_TLS_KEY: "/key",
    KPNG_API_TOKEN: "secret",
  };
  const settings = { SOME_SETTING: "1", KUBECONFIG: "/k" };
  await using watcher = await startFakeWatcher(inTurn([reset, sync()]));
  const path = script("inherits-all", "cat /proc/$$/environ");
  const args = ["--api", watcher.address, "--once", "--node-name", "n1", "--callout", path];
  const program = startProgram(main, args, { ...credentials, ...settings, HOME: "/h" });
  expect(await program.ended, program.stderr()).toBe(0);
  const variables = program.stdout().split("\0");
  const environment = Object.fromEntries(variables.map((text) => text.split(/=(.*)/s).slice(0, 2)));
  expect(environment).toMatchObject({ ...settings, PATH: process.env.PATH });
  for (const name of Object.keys(credentials)) expect(environment).not.toHaveProperty(name);
});

function script(name: string, body: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  return path;
}
