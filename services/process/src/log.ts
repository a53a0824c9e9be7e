import { pino } from "pino";
import { RepeatLimit } from "./repeat-limit.ts";

/** Lowest severity that is logged; "off" for nothing. */
export type LogLevel = "off" | "error" | "info" | "debug";

/** Fields of a log line, by name. */
export type LogFields = Readonly<Record<string, unknown>>;

/**
 * Structured log: one JSON object per line.
 *
 * The message is constant text; values that vary are fields, named as in the glossary. Contents of Kubernetes objects
 * are never logged.
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
 * RepeatLimit}), except lines of level "debug". Each program calls it once. `RepeatLimit` decides which repetitions are
 * held back; this file formats and writes.
 */
export function createLog(
  level: LogLevel = "info",
  write?: (line: string) => void,
  repeats: RepeatLimit = new RepeatLimit(),
): Log {
  // Synchronous: a line that explains a crash must be written before the process exits.
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

/** `boundKey` is the key of the fields that the logger adds to every line. */
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
 * Key under which lines count as repetitions of each other: all text fields. Numeric fields, numbers in a reason, and
 * trace ids vary between repetitions and are left out.
 */
function keyOf(fields: LogFields): string {
  let key = "";
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value !== "string" || name === "trace_id" || name === "span_id") continue;
    key += `\n${name} ${name === "reason" ? value.replaceAll(/\d+/g, "#") : value}`;
  }
  return key;
}

/** Returns the message of a thrown value, followed by the messages of its causes. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const message = error.message === "" ? error.name : error.message;
  if (error.cause === undefined) return message;
  const cause = reasonOf(error.cause);
  return message.includes(cause) ? message : `${message}: ${cause}`;
}
