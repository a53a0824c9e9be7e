import { silence, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { putService, reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { expect, test } from "vitest";

const main = new URL("main.ts", import.meta.url);

test("each change prints the whole view; a reconnect without change prints nothing; SIGTERM ends with exit code 0", async () => {
  await using watcher = await startFakeWatcher((request) => {
    if (request.stream > 0)
      return request.index === 0 ? [reset, putService("a/1"), putService("a/2"), sync()] : silence(request);
    if (request.index === 0) return [reset, putService("a/1"), sync()];
    if (request.index === 1) return [putService("a/2"), sync()];
    return "end";
  });
  const program = startProgram(main, ["--api", watcher.address, "--error-delay", "10ms", "--log-level", "debug"]);
  await watcher.untilReceived(5);
  program.stop();
  expect(await program.ended).toBe(0);
  const names = program
    .stdout()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).Service.Name);
  expect(names).toEqual(["1", "1", "2"]);
});

test.each([
  { name: "an invalid address", args: ["--api", "no address"], code: 1, says: "BAD_OPTION" },
  { name: "a missing TLS file", args: ["--tls-ca", "/no/such/file"], code: 1, says: "TLS_FILES" },
  { name: "an unknown option", args: ["--frobnicate"], code: 2, says: "unknown option" },
])("$name ends the program at the start with exit code $code", async ({ args, code, says }) => {
  const program = startProgram(main, args);
  expect(await program.ended).toBe(code);
  expect(program.stderr()).toContain(says);
});
