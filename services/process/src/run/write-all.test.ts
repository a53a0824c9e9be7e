import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { writeAll } from "./write-all.ts";

/** A stream whose reader is gone. */
function closedPipe(onError: (error: Error) => void): Writable {
  const stream = new Writable({ write: (_chunk, _encoding, callback) => callback(new Error("write EPIPE")) });
  return stream.on("error", onError);
}

test("a write that fails rejects with the stream's error", async () => {
  const pipe = closedPipe(() => undefined);
  await expect(writeAll(pipe, ["text"], new AbortController().signal)).rejects.toThrow("write EPIPE");
});

test("a write that fails rejects with the signal's reason if the stream's error aborts the signal", async () => {
  const stop = new AbortController();
  const pipe = closedPipe(() => stop.abort(new Error("the reader is gone")));
  await expect(writeAll(pipe, ["text"], stop.signal)).rejects.toThrow("the reader is gone");
});
