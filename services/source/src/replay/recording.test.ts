import { truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { OpItemSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { expect, test } from "vitest";
import {
  formatRecordingLine,
  maxRecordingBytes,
  parseRecording,
  type RecordingLine,
  readRecording,
} from "./recording.ts";

const head: RecordingLine = { kind: "head", recordedBy: "kpng 1", beganAt: "2026-01-01T00:00:00Z", status: {} };
const Ref = { Set: SetName.GlobalNodeInfos, Path: "|n1||" };
const op: RecordingLine = {
  kind: "op",
  atMs: 12,
  op: create(OpItemSchema, { Op: { case: "Set", value: { Ref, Bytes: new Uint8Array([1, 2, 255]) } } }),
};
const rows: RecordingLine = { kind: "rows", of: "changes", atMs: 20, rows: [{ revision: "7" }] };
const text = (...lines: readonly RecordingLine[]): string =>
  lines.map((line) => `${formatRecordingLine(line)}\n`).join("");

test("a truncated last line is ignored", () => {
  expect(parseRecording(text(head, op, rows).slice(0, -10), "r")).toEqual([head, op]);
  expect(parseRecording(text(head, op).trimEnd(), "r")).toEqual([head, op]);
});

test.each([
  { what: "is empty", content: "", at: "r is not a recording" },
  { what: "is another file", content: "# kpng\n", at: "r, line 1:" },
  { what: "is another JSON file", content: '{"kind":"head"}\n', at: "line 1:" },
  { what: "has a later format", content: '{"kpngRecording":2,"kind":"head"}\n', at: "line 1:" },
  { what: "has no head", content: text(op), at: "line 1:" },
  { what: "has a line that is not an object", content: `${text(head)}null\n`, at: "r, line 2:" },
  { what: "has a line of unknown kind", content: `${text(head)}{"kind":"song"}\n`, at: "line 2:" },
  { what: "has an invalid operation", content: `${text(head)}{"kind":"op","atMs":1,"op":{"Set":3}}\n`, at: "line 2:" },
  { what: "has an invalid time", content: `${text(head)}{"kind":"op","atMs":"x","op":{}}\n`, at: "line 2:" },
  {
    what: "has rows that are not a list",
    content: `${text(head)}{"kind":"rows","of":"changes","rows":1}\n`,
    at: "line 2:",
  },
])("a recording that $what is rejected, with the line number", ({ content, at }) => {
  expect(() => parseRecording(content, "r")).toThrow(at);
});

test("a recording that is too large for a string is rejected with BAD_INPUT", () => {
  const path = join(temporaryFolder(), "large.jsonl");
  writeFileSync(path, "");
  // A sparse file: it takes no space on the disk.
  truncateSync(path, maxRecordingBytes + 1);
  expect(() => readRecording(path)).toThrow(/^\[BAD_INPUT\] cannot read the recording/);
});
