import { pino } from "pino";

/** Lowest severity that is logged; "off" disables logging. */
export type LogLevel = "off" | "error" | "info" | "debug";

/** Fields of a log line, by name. */
export type LogFields = Readonly<Record<string, unknown>>;

/**
 * Structured log: one JSON object per line.
 *
 * The message is a constant string; variable values are fields, named as in docs/concepts.md. Contents of Kubernetes
 * objects are never logged.
 */
export interface Log {
  error(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  debug(message: string, fields?: LogFields): void;
  /** Returns a log that adds these fields to every line. */
  with(fields: LogFields): Log;
}

/**
 * Returns a log that writes to standard error, or to `write` in tests. Repeated lines are held back (see {@link
 * RepeatLimit}), except for lines of level "debug".
 */
export function createLog(
  level: LogLevel = "info",
  write?: (line: string) => void,
  repeats: RepeatLimit = new RepeatLimit(),
): Log {
  // Write synchronously, so that a line that explains a crash is written before the process exits.
  const destination = write === undefined ? standardError() : { write };
  const options = {
    level: level === "off" ? "silent" : level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return wrap(pino(options, destination), repeats, "");
}

function standardError(): pino.DestinationStream {
  const destination = pino.destination({ dest: 2, sync: true });
  // A full disk or a closed pipe may lose log lines, but must not stop a process that maintains rules.
  destination.on("error", () => undefined);
  return destination;
}

/** Wraps a pino logger. `boundKey` is the repetition key of the fields that the logger adds to every line. */
function wrap(logger: pino.Logger, repeats: RepeatLimit, boundKey: string): Log {
  const write = (level: "error" | "info", message: string, fields: LogFields = {}): void => {
    if (!logger.isLevelEnabled(level)) return;
    repeats.add(`${level} ${message}${boundKey}${keyOf(fields)}`, (repeated) =>
      logger[level](repeated === 0 ? fields : { ...fields, repeated }, message),
    );
  };
  return {
    error: (message, fields) => write("error", message, fields),
    info: (message, fields) => write("info", message, fields),
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    with: (fields) => wrap(logger.child(fields), repeats, `${boundKey}${keyOf(fields)}`),
  };
}

/**
 * Returns the key by which lines count as repetitions of each other; it consists of all string fields. Numeric fields,
 * numbers in a reason, trace ids and stacks vary between repetitions and are left out.
 */
function keyOf(fields: LogFields): string {
  let key = "";
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value !== "string" || ["trace_id", "span_id", "stack"].includes(name)) continue;
    key += `\n${name} ${name === "reason" ? value.replaceAll(/\d+/g, "#") : value}`;
  }
  return key;
}

/** Error message from OpenSSL. *Shape:* `40BD6F:error:0A00045C:SSL routines:ssl3_read_bytes:REASON:file.c:918:…` */
const opensslError = /[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):\S+:\d+:(?:SSL alert number \d+)?/g;

/** Returns a message in which each OpenSSL error is reduced to its reason, without addresses, functions and files. */
export function withoutOpensslTrace(message: string): string {
  return message.replaceAll(opensslError, "TLS: $1").trim();
}

/** Returns the message of a thrown value, followed by the messages of its causes. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const message = withoutOpensslTrace(error.message) || error.name;
  if (error.cause === undefined) return message;
  const cause = reasonOf(error.cause);
  return message.includes(cause) ? message : `${message}: ${cause}`;
}

/** Returns the stack of an error that has none of our codes, because such an error is a bug; otherwise undefined. */
export function stackOf(error: unknown): string | undefined {
  return error instanceof Error && !/^\[[A-Z_]+\] /.test(error.message) ? error.stack : undefined;
}

/**
 * Returns an address, or a list of addresses, in a form that may be printed: everything before the last `@` is hidden,
 * because it may contain a password.
 *
 * *Example:* `http://user:secret@host:80` is `http://***@host:80`.
 */
export function withoutCredentials(address: string): string {
  // Match up to the last @, because a user may have typed a password with characters that should be escaped, such as
  // slashes and commas.
  return address.replace(/^([a-z0-9+.-]+:\/\/)?.*@/is, "$1***@");
}

interface RepeatLimitOptions {
  /** Number of events with the same key that pass within a window. Default 5. */
  readonly burst?: number | undefined;
  /** Maximum number of keys in a window. Default 1 000. */
  readonly maxKeys?: number | undefined;
  /** Calls `callback` once after `ms` milliseconds. Default: a timer that does not keep the process alive. */
  readonly schedule?: ((callback: () => void, ms: number) => void) | undefined;
}

/** Length of a window, in milliseconds. It begins with the first event after the previous window. */
const windowMs = 60_000;

interface Repeats {
  passed: number;
  heldBack: number;
  /** Reports the newest event that was held back, with the number of events held back. */
  report: (heldBackCount: number) => void;
}

/**
 * Limits repeated events, such as log lines: within a window the first few events of a key pass. At the window's end,
 * the newest of the other events is reported together with their number. This way a recurring fault does not fill the
 * disk.
 *
 * *Bound:* `maxKeys` keys; the next one ends the window early.
 */
export class RepeatLimit {
  readonly #burst: number;
  readonly #maxKeys: number;
  readonly #schedule: (callback: () => void, ms: number) => void;
  #window = new Map<string, Repeats>();

  constructor({ burst = 5, maxKeys = 1_000, schedule = later }: RepeatLimitOptions = {}) {
    this.#burst = burst;
    this.#maxKeys = maxKeys;
    this.#schedule = schedule;
  }

  /**
   * Adds an event. Calls `report` with 0 immediately if the event passes; at the end of the window, with the number of
   * events held back, if it is the newest of them; otherwise never.
   */
  add(key: string, report: (heldBackCount: number) => void): void {
    const known = this.#window.get(key);
    if (known === undefined && this.#window.size === this.#maxKeys) this.#end(this.#window);
    const window = this.#window;
    if (window.size === 0) this.#schedule(() => this.#end(window), windowMs);
    const repeats = known ?? { passed: 0, heldBack: 0, report };
    window.set(key, repeats);
    if (repeats.passed < this.#burst) {
      repeats.passed += 1;
      report(0);
      return;
    }
    repeats.heldBack += 1;
    repeats.report = report;
  }

  #end(window: ReadonlyMap<string, Repeats>): void {
    if (window !== this.#window) return;
    this.#window = new Map();
    for (const { heldBack, report } of window.values()) if (heldBack > 0) report(heldBack);
  }
}

function later(callback: () => void, ms: number): void {
  setTimeout(callback, ms).unref();
}
