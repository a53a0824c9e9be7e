import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { maxRecordingBytes, readRecording } from "./read-recording.ts";

test("a recording that is too large for a string is rejected with BAD_INPUT", () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-recording-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "large.jsonl");
  writeFileSync(path, "");
  // A sparse file: it takes no space on the disk.
  truncateSync(path, maxRecordingBytes + 1);
  expect(() => readRecording(path)).toThrow(/^\[BAD_INPUT\] cannot read the recording/);
});
