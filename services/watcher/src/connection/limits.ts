import { readFileSync } from "node:fs";
import { addCounter } from "@kpng/process/health/metrics.ts";
import type { Log } from "@kpng/process/log.ts";
import { RepeatLimit } from "@kpng/process/log.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import type { Counter, Registry } from "prom-client";

/** Limits on what clients may use at a time. For 0 or undefined, {@link resolveLimits} chooses the limit. */
export interface ClientLimits {
  /** Connections over TCP (`--max-connections`). */
  readonly maxConnections?: number | undefined;
  /** Calls of people in progress. See CallClass. */
  readonly maxQueries?: number | undefined;
  /** Calls in progress from nodes and relays. See CallClass. */
  readonly maxCalls?: number | undefined;
  /** Memory of unread and incomplete requests, in bytes; see `Admission`. */
  readonly maxRequestBytes?: number | undefined;
}

interface ProcessResources {
  readonly memoryBytes: number;
  /** Maximum number of open files; each connection is an open file. */
  readonly openFiles: number;
}

/** Measured memory of a node's connection, in bytes, rounded up. */
const connectionBytes = { plain: 50 * 1_024, tls: 220 * 1_024 };

/** Memory of a query whose client does not read, in bytes: 500 rows and their encoded form. */
const queryBytes = 1_024 * 1_024;

/** Open files reserved for health probes, the source and state files. */
const reservedFiles = 64;

/**
 * Returns the limits of a process. Connections may take half of the memory, and queries and requests an eighth each.
 * Beyond the limit on open files, the system would close any connection, even that of a health probe. Pure.
 */
export function resolveLimits(
  limits: ClientLimits,
  { memoryBytes, openFiles }: ProcessResources,
  isTls: boolean,
): Required<{ readonly [K in keyof ClientLimits]: number }> {
  const byFiles = openFiles - Math.min(reservedFiles, openFiles / 2);
  const byMemory = memoryBytes / 2 / (isTls ? connectionBytes.tls : connectionBytes.plain);
  return {
    maxConnections: Math.max(1, Math.floor(Math.min(limits.maxConnections || byMemory, byFiles))),
    maxQueries: limits.maxQueries || Math.min(1_000, Math.max(16, Math.floor(memoryBytes / 8 / queryBytes))),
    // A node has one connection with one call; connectionBytes includes the memory of that call.
    maxCalls: limits.maxCalls || Math.max(1, Math.floor(memoryBytes / 2 / connectionBytes.plain)),
    maxRequestBytes: limits.maxRequestBytes || Math.floor(memoryBytes / 8),
  };
}

export function readResources(): ProcessResources {
  return { memoryBytes: memoryLimitBytes(), openFiles: readOpenFiles() };
}

/** Returns the limit on open files. Node.js raises the soft limit to the hard limit when it starts. */
function readOpenFiles(): number {
  try {
    const [, soft = ""] = /^Max open files\s+(\S+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return /^\d+$/.test(soft) ? Number(soft) : Number.POSITIVE_INFINITY;
  } catch {
    // Only Linux has this file.
    return Number.POSITIVE_INFINITY;
  }
}

/** A rate with a burst: a client may send `burst` units immediately, and `perSecond` units per second after that. */
export class Rate {
  readonly #burst: number;
  readonly #perSecond: number;
  /** When the client may send a whole burst again, in milliseconds. */
  #fullAtMs = 0;

  constructor(burst: number, perSecond: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
  }

  add(count: number): void {
    this.#fullAtMs = Math.max(this.#fullAtMs, performance.now()) + (count * 1_000) / this.#perSecond;
  }

  /** How long the client must pause to return to the rate, in milliseconds; 0 if it is within the rate. */
  get pauseMs(): number {
    return Math.max(0, this.#fullAtMs - performance.now() - (this.#burst * 1_000) / this.#perSecond);
  }
}

/** Why a connection or a call was refused or ended; values of the label `reason` of kpng_refused_total. */
export type RefusalReason = keyof typeof messages;

// The numbers are those of `maxPerNode`, `callBurst`, `callsPerSecond` and `maxHeaderBytes`.
const messages = {
  connections: "connection refused: the limit of connections is reached (--max-connections)",
  files: "connection refused: too many open files (ulimit -n)",
  calls: "call refused: the limit of calls of its class is reached (nodes, unproven tokens, or health checks)",
  "node-calls": "call refused: the limit of calls of its node is reached (16 streams, 8 queries)",
  "call-rate": "connection ended: it began more than 500 calls at once, or 100 per second after that",
  headers: "connection ended: the headers of a call have more than 16 KiB",
  queries: "query refused: the limit of queries in progress is reached",
  "open-calls": "call of a client without rights refused: the limit of such calls is reached",
  requests: "connection ended: unread requests occupy too much memory, those of this connection the most",
  protocol:
    "connection ended: the client does not speak HTTP/2, violates it, or sent too many frames, resets or headers",
  unread: "call ended: the client has not read for too long",
  request: "call ended: a request has more fields or entries than the watcher reads",
} as const;

/** Counts refused and ended connections and calls; logs at most two lines per minute for each reason. */
export class Refusals {
  readonly #log: Log;
  readonly #counter: Counter<"reason">;
  readonly #repeats = new RepeatLimit({ burst: 1 });

  constructor(log: Log, registry: Registry) {
    this.#log = log;
    const help = "Connections and calls that were refused or ended because of a limit";
    this.#counter = addCounter(registry, "kpng_refused_total", help, "reason", Object.keys(messages));
  }

  /** `peer` is the address of the client, "" if unknown; `fields` are added to the log line. */
  add(reason: RefusalReason, peer: string, fields: Readonly<Record<string, string>> = {}): void {
    this.#counter.inc({ reason });
    this.#repeats.add(reason, (repeated) =>
      this.#log.info(messages[reason], { peer, ...fields, ...(repeated === 0 ? {} : { repeated }) }),
    );
  }
}
