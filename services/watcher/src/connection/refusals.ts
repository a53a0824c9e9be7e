import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/repeat-limit.ts";
import { Counter, type Registry } from "prom-client";

/** Why a connection or a call was refused or ended; values of the label `reason` of kpng_refused_total. */
export type RefusalReason = keyof typeof messages;

/** Log messages by reason. */
const messages = {
  connections: "connection refused: the watcher has as many as it may (--max-connections)",
  address: "connection refused: its address has as many as it may (--max-connections-per-address)",
  files: "connection refused: too many open files (ulimit -n)",
  calls: "call refused, or its connection ended if it has many: there are as many of its class as may be (--max-calls)",
  "node-calls":
    "call refused, or its connection ended if it has many: clients of its node have as many as they may (16 streams, 8 queries)",
  "call-rate": "connection ended: it cancelled calls that waited, and began more than 100 per second",
  headers: "connection ended: the headers of a call have more than 16 KiB",
  queries: "query refused: the watcher answers as many as it may (--max-queries)",
  "connection-queries": "query refused: its connection has as many as it may (32)",
  "open-calls": "call without a right refused: the watcher has as many as it may (--max-queries)",
  requests:
    "connection ended: it held the most of the memory for incomplete or waiting requests (--max-request-memory)",
  pipelined: "connection ended: too many requests over HTTP/1.1 wait for earlier ones",
  protocol: "connection ended: it broke a rule of HTTP/2, or sent too many frames, resets or headers",
  unread: "call ended: the client has not read for too long (--write-timeout)",
  pages: "status page refused: as many are open as may be",
  "web-page": "call refused: it looks like one that a web page of another site made a browser send",
  request: "call ended: a request has more fields or entries than the watcher reads",
} as const;

/**
 * Counts the connections and calls that are refused, and logs one line a minute for each reason. `serve` creates one;
 * `AcceptLimit`, `Admission`, `RequestMemory`, `Connections`, `refuseRequest` and the status page report
 * to it, so that they share the metric.
 */
export class Refusals {
  readonly #log: Log;
  readonly #counter: Counter<"reason">;
  readonly #repeats = new RepeatLimit({ burst: 1 });

  constructor(log: Log, registry: Registry) {
    this.#log = log;
    this.#counter = new Counter({
      name: "kpng_refused_total",
      help: "Connections and calls that were refused or ended because of a limit, or because a web page of another site sent them",
      labelNames: ["reason"],
      registers: [registry],
    });
    for (const reason of Object.keys(messages)) this.#counter.inc({ reason }, 0);
  }

  /** `peer` is the address of the client; "" if unknown. `fields` are more fields of the log line. */
  add(reason: RefusalReason, peer: string, fields: Readonly<Record<string, string>> = {}): void {
    this.#counter.inc({ reason });
    this.#repeats.add(reason, (heldBack) =>
      this.#log.info(messages[reason], { peer, ...fields, ...(heldBack === 0 ? {} : { repeated: heldBack }) }),
    );
  }
}
