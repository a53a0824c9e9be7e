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

/** Maximum number of characters that wait to be written. */
const maxWaiting = 1_048_576;
const firstWaitMs = 1_000;
const maxWaitMs = 60_000;

/**
 * The access log (`--access-log`): one line of JSON for each connection and UDP flow that ends, on standard output or
 * appended to a file. `UserspaceRuntime` opens it; `Connection`, `TcpListener` and `UdpListener` write to it. Separate
 * from the log of the process, which holds back lines that repeat.
 *
 * *Bound:* 1 MiB of lines that wait for a slow reader; further ones are dropped, which is reported once for each time
 * that it happens. After an error, e.g. a full disk, lines are dropped until the file is opened again with a later
 * line: after 1 s, then 2 s, up to 60 s. Standard output cannot be opened again.
 */
export class AccessLog {
  readonly #path: string;
  readonly #onError: (reason: string) => void;
  #stream: Writable;
  #isDropping = false;
  /** Time until the file is opened again after the next error. */
  #waitMs = firstWaitMs;
  /** When the file may be opened again after an error; undefined while there was none. */
  #reopenMs: number | undefined;

  /** `path` is a file, or "-" for standard output. `onError` receives the reason why lines are dropped. */
  constructor(path: string, onError: (reason: string) => void) {
    this.#path = path;
    this.#onError = onError;
    this.#stream = this.#open();
  }

  write(record: AccessRecord): void {
    if (this.#reopenMs !== undefined) {
      if (this.#path === "-" || performance.now() < this.#reopenMs) return;
      this.#reopenMs = undefined;
      this.#stream = this.#open();
    }
    const isDropping = this.#stream.writableLength > maxWaiting;
    if (isDropping && !this.#isDropping) this.#onError("lines are dropped: they are not read fast enough");
    this.#isDropping = isDropping;
    if (isDropping) return;
    this.#stream.write(`${JSON.stringify({ time: new Date().toISOString(), ...record })}\n`, (error) => {
      if (!error) this.#waitMs = firstWaitMs;
    });
  }

  #open(): Writable {
    const { stdout } = process;
    const stream: Writable = this.#path === "-" ? stdout : createWriteStream(this.#path, { flags: "a", mode: 0o640 });
    stream.on("error", ({ message }) => {
      const next = this.#path === "-" ? "no more lines are written" : `opened again after ${this.#waitMs / 1_000} s`;
      this.#onError(`${message}; ${next}`);
      this.#reopenMs = performance.now() + this.#waitMs;
      this.#waitMs = Math.min(this.#waitMs * 2, maxWaitMs);
    });
    return stream;
  }
}
