import { createWriteStream } from "node:fs";
import type { Writable } from "node:stream";
import type { ConnectionEnd } from "./service-traffic.ts";

/** A line of the access log, for one connection or UDP flow. */
export interface AccessRecord {
  /** Name of the service port. *Shape:* `default/web:http`. */
  readonly service: string;
  readonly protocol: "TCP" | "UDP";
  /** *Shape:* `10.0.0.7:40312`; "" if the client was gone before its address was read. */
  readonly client: string;
  /** "" if no endpoint was reached. */
  readonly endpoint: string;
  readonly end: ConnectionEnd;
  readonly durationMs: number;
  readonly bytesFromClient: number;
  readonly bytesToClient: number;
}

/** Characters that may wait to be written. */
const maxWaiting = 1_048_576;

/**
 * The access log (`--access-log`): one line of JSON for each connection and UDP flow that ends, on standard output or
 * appended to a file. Apart from the log of the process, which holds back lines that repeat.
 *
 * *Bound:* 1 MiB of lines that wait for a slow reader; further ones are dropped, which is reported once for each time
 * that it happens.
 */
export class AccessLog {
  readonly #stream: Writable;
  readonly #onError: (error: Error) => void;
  #isDropping = false;

  /** `path` is a file, or "-" for standard output. */
  constructor(path: string, onError: (error: Error) => void) {
    this.#stream = path === "-" ? process.stdout : createWriteStream(path, { flags: "a", mode: 0o640 });
    this.#stream.on("error", onError);
    this.#onError = onError;
  }

  /** Writes one line. */
  write(record: AccessRecord): void {
    const isDropping = this.#stream.writableLength > maxWaiting || this.#stream.destroyed;
    if (isDropping && !this.#isDropping) this.#onError(new Error("lines are dropped: they are not read fast enough"));
    this.#isDropping = isDropping;
    if (isDropping) return;
    this.#stream.write(`${JSON.stringify({ time: new Date().toISOString(), ...record })}\n`);
  }
}
