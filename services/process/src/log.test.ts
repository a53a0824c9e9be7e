import { expect, test } from "vitest";
import { parseApiAddress } from "./connection/dial.ts";
import { parseHostPort } from "./connection/listen.ts";
import { createLog, RepeatLimit, stackOf, withoutCredentials } from "./log.ts";
import { ProcessError } from "./process-error.ts";

test.each([
  ["http://user:secret@host:80/x", "http://***@host:80/x"],
  ["HTTPS://secret@host", "HTTPS://***@host"],
  ["user:secret@host", "***@host"],
  ["http://user:sec/ret@host", "http://***@host"],
  ["http://user:sec@ret@host", "http://***@host"],
  ["http://a:secret@b,http://c:secret@d", "http://***@d"],
  ["http://user:sec\nret@host", "http://***@host"],
  ["http://host:80", "http://host:80"],
  ["host", "host"],
  ["", ""],
])("%j is shown as %j", (address, shown) => {
  expect(withoutCredentials(address)).toBe(shown);
});

test.each([
  () => parseApiAddress("http://user:secret@host", false),
  () => parseApiAddress("user:secret@host:99999", true),
  () => parseHostPort("user:secret@host:1", "--listen"),
])("the error for an invalid address does not contain its password: %s", (parse) => {
  expect(parse).toThrow(/^\[BAD_OPTION\] --(api|listen) "(http:\/\/)?\*\*\*@host/);
});

/** Returns a log whose windows end when the test calls `endWindows`. */
function makeLog(options: { readonly burst: number; readonly maxKeys?: number }) {
  const ends: (() => void)[] = [];
  const lines: Record<string, unknown>[] = [];
  const repeats = new RepeatLimit({ ...options, schedule: (end) => void ends.push(end) });
  const log = createLog("debug", (line) => lines.push(JSON.parse(line)), repeats);
  const endWindows = (): void => {
    for (const end of ends.splice(0)) end();
  };
  return { log, lines, endWindows };
}

test("a repeated line passes a few times, then once more with the number of lines held back", () => {
  const { log, lines, endWindows } = makeLog({ burst: 2 });
  for (let delayMs = 1; delayMs <= 6; delayMs++) log.error("stream lost", { reason: "refused", delayMs });
  expect(lines.map(({ delayMs }) => delayMs)).toEqual([1, 2]);
  endWindows();
  expect(lines.at(-1)).toMatchObject({ msg: "stream lost", reason: "refused", delayMs: 6, repeated: 4 });
  log.error("stream lost", { reason: "refused", delayMs: 7 });
  expect(lines.at(-1)).not.toHaveProperty("repeated");
});

test.each([
  ["another reason", "input is bad", { at: "a.yaml", problem: "no port" }, { at: "a.yaml", problem: "no name" }],
  ["another object", "object passed over", { key: "ns/web-1" }, { key: "ns/web-2" }],
])("a line with %s is not a repetition", (_what, message, first, second) => {
  const { log, lines } = makeLog({ burst: 1 });
  log.info(message, first);
  log.info(message, second);
  log.info(message, first);
  expect(lines).toHaveLength(2);
});

test.each([
  ["a number", { revision: 1 }, { revision: 2 }],
  ["a number in the reason", { reason: "reset by 10.0.0.1:4711" }, { reason: "reset by 10.0.0.1:4712" }],
  ["the trace", { trace_id: "a", span_id: "b" }, { trace_id: "c", span_id: "d" }],
  ["the stack", { stack: "Error: 1\n at a" }, { stack: "Error: 2\n at a" }],
])("a line that differs only by %s is a repetition", (_what, first, second) => {
  const { log, lines } = makeLog({ burst: 1 });
  log.error("sync failed", first);
  log.error("sync failed", second);
  expect(lines).toHaveLength(1);
});

test("an error without a code is logged with its stack, and one with a code without", () => {
  const { log, lines } = makeLog({ burst: 2 });
  for (const error of [new Error("disk full"), new ProcessError("OUTPUT_FAILED", "disk full"), "disk full"])
    log.error(String(error), { stack: stackOf(error) });
  expect(lines.map((line) => line.stack)).toEqual([expect.stringMatching(/^Error: disk full\n/), undefined, undefined]);
});

test("lines with other bound fields or another level are counted apart, and debug lines are never held back", () => {
  const { log, lines } = makeLog({ burst: 1 });
  for (let i = 0; i < 3; i++) {
    log.with({ family: "v4" }).error("failed");
    log.with({ family: "v6" }).error("failed");
    log.info("failed");
    log.debug("failed");
  }
  expect(lines).toHaveLength(3 + 3);
});

test("beyond maxKeys the window ends early and reports what it held back", () => {
  const { log, lines } = makeLog({ burst: 1, maxKeys: 2 });
  for (const key of ["a", "a", "a", "b", "c", "a"]) log.info("passed over", { key });
  expect(lines.map(({ key, repeated }) => `${key} ${repeated ?? ""}`.trim())).toEqual(["a", "b", "a 2", "c", "a"]);
});
