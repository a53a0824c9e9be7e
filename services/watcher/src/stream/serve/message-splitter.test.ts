import { expect, test } from "vitest";
import { MessageSplitter } from "./grpc-watch.ts";

/** Two gRPC messages, of 3 and of 60 000 bytes, followed by two bytes of a third. */
const first = Uint8Array.from([1, 2, 3]);
const second = Uint8Array.from({ length: 60_000 }, (_, index) => index);
const data = Buffer.concat([Buffer.from([0, 0, 0, 0, 3]), first, Buffer.from([0, 0, 0, 0xea, 0x60]), second, first]);

test.each([1, 7, 4_096, 60_008, 70_000])("messages that arrive %i bytes at a time are complete", (size) => {
  const splitter = new MessageSplitter(64 * 1_024);
  const messages: Uint8Array[] = [];
  for (let at = 0; at < data.length; at += size) {
    splitter.push(data.subarray(at, at + size));
    for (let message = splitter.next(); message !== undefined; message = splitter.next()) messages.push(message);
  }
  expect(messages.map((message) => Buffer.compare(message, message.length === 3 ? first : second))).toEqual([0, 0]);
  expect(() => splitter.end()).toThrow("3 bytes into a message");
});
