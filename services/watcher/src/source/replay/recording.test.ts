import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  formatRecordingLine,
  maxRecordingBytes,
  parseRecording,
  type RecordingLine,
  readRecording,
} from "./recording.ts";

const head: RecordingLine = { kind: "head", recordedBy: "kpng 1", beganAt: "2026-01-01T00:00:00Z", status: {} };
const op: RecordingLine = {
  kind: "op",
  atMs: 12,
  op: create(OpItemSchema, {
    Op: {
      case: "Set",
      value: { Ref: { Set: SetName.GlobalNodeInfos, Path: "|n1||" }, Bytes: new Uint8Array([1, 2, 255]) },
    },
  }),
};
const rows: RecordingLine = { kind: "rows", of: "changes", atMs: 20, rows: [{ revision: "7" }] };
const text = (...lines: readonly RecordingLine[]): string =>
  lines.map((line) => `${formatRecordingLine(line)}\n`).join("");

test("a written recording is read back unchanged", () => {
  expect(parseRecording(text(head, op, rows), "r")).toEqual([head, op, rows]);
});

test("a truncated last line is ignored", () => {
  expect(parseRecording(text(head, op, rows).slice(0, -10), "r")).toEqual([head, op]);
  expect(parseRecording(text(head, op).trimEnd(), "r")).toEqual([head, op]);
});

describe("a recording is rejected with the line number if it is", () => {
  test.each([
    ["empty", "", /r is not a recording of kpng/],
    ["another file", "# kpng\n", /r, line 1: not JSON/],
    ["another JSON file", '{"kind":"head"}\n', /line 1: not the head of a recording in format 1/],
    ["a later format", '{"kpngRecording":2,"kind":"head"}\n', /line 1: not the head of a recording in format 1/],
    ["a recording without a head", text(op), /line 1: not the head/],
    ["a recording with a line of unknown kind", `${text(head)}{"kind":"song"}\n`, /line 2: unknown kind "song"/],
    [
      "a recording with an invalid operation",
      `${text(head)}{"kind":"op","atMs":1,"op":{"Set":3}}\n`,
      /line 2: invalid operation/,
    ],
    [
      "a recording with an invalid time",
      `${text(head)}{"kind":"op","atMs":"x","op":{}}\n`,
      /line 2: atMs is not a number/,
    ],
    [
      "a recording with rows that are not a list",
      `${text(head)}{"kind":"rows","of":"changes","rows":1}\n`,
      /line 2: rows is not a list/,
    ],
  ])("%s", (_, content, message) => {
    expect(() => parseRecording(content, "r")).toThrow(message);
  });
});

test("a recording that is too large for a string is rejected with BAD_INPUT", () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-recording-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "large.jsonl");
  writeFileSync(path, "");
  // A sparse file: it takes no space on the disk.
  truncateSync(path, maxRecordingBytes + 1);
  expect(() => readRecording(path)).toThrow(/^\[BAD_INPUT\] cannot read the recording/);
});
