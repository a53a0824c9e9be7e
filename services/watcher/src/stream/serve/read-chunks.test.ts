import { once } from "node:events";
import { connect, createServer, type Http2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { makeRandom } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { readChunks } from "./read-messages.ts";

/** Sends 32-bit numbers in chunks of any size, and returns the numbers that were read until the end. */
async function numbersRead(count: number, onStream: (stream: Http2Stream) => void): Promise<number[]> {
  const server = createServer();
  const received: Uint8Array[] = [];
  const ended = new Promise<void>((resolve) => {
    server.once("stream", (stream) => {
      readChunks(stream, (chunk) => received.push(Uint8Array.from(chunk)));
      stream.once("end", resolve);
      stream.respond({ ":status": 200 });
      stream.end();
      onStream(stream);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const random = makeRandom(7);
  const all = Buffer.alloc(4 * count);
  for (let index = 0; index < count; index += 1) all.writeUInt32BE(index, 4 * index);
  const stream = session.request({ ":method": "POST" }, { endStream: false });
  for (let start = 0; start < all.length; ) {
    const end = Math.min(all.length, start + 1 + Math.floor(random() * 3_000));
    if (!stream.write(all.subarray(start, end))) await once(stream, "drain");
    if (random() < 0.2) await turn();
    start = end;
  }
  stream.end();
  await ended;
  session.destroy();
  server.close();
  const bytes = Buffer.concat(received);
  return Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readUInt32BE(4 * index));
}

const inOrder = Array.from({ length: 50_000 }, (_, index) => index);

test("readChunks reads everything in order, and then the end", async () => {
  expect(await numbersRead(inOrder.length, () => undefined)).toEqual(inOrder);
});

test("readChunks reads everything when the stream is paused and resumed", async () => {
  const random = makeRandom(8);
  const numbers = await numbersRead(inOrder.length, (stream) => {
    const change = (): void => {
      if (stream.destroyed || stream.readableEnded) return;
      if (random() < 0.5) stream.pause();
      else stream.resume();
      if (random() < 0.5) setImmediate(change);
      else queueMicrotask(() => setTimeout(change, 1));
    };
    change();
    // The stream must flow at the end, or there is no "end" event.
    setTimeout(() => stream.resume(), 200).unref();
    const keepFlowing = setInterval(() => stream.resume(), 20);
    stream.once("close", () => clearInterval(keepFlowing));
  });
  expect(numbers).toEqual(inOrder);
});
