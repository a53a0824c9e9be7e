import { pino } from "pino";
import { Repeats } from "./repeats.ts";

export type LogLevel = "error" | "info" | "debug";

export type LogFields = Readonly<Record<string, unknown>>;

/**
 * Writes one JSON object a line to standard error.
 *
 * The message is constant text, what varies goes into fields with names from the glossary. Bodies of objects are never
 * logged.
 */
export interface Log {
  error(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  debug(message: string, fields?: LogFields): void;
  /** A log whose lines all carry these fields. */
  with(fields: LogFields): Log;
}

/**
 * Returns a log on standard error; `write` takes its lines instead where a test reads them. Lines that repeat are held
 * back, see {@link Repeats}; those of "debug" are not.
 */
export function createLog(
  level: LogLevel = "info",
  write?: (line: string) => void,
  repeats: Repeats = new Repeats(),
): Log {
  // Synchronous: a line that explains a crash must be out before the process is gone.
  const destination = write === undefined ? standardError() : { write };
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return wrap(pino(options, destination), repeats, "");
}

function standardError(): pino.DestinationStream {
  const destination = pino.destination({ dest: 2, sync: true });
  // A full disk or a reader that is gone costs lines of the log, and not the node its rules.
  destination.on("error", () => undefined);
  return destination;
}

/** `bound` is the key of the fields that all lines carry. */
function wrap(logger: pino.Logger, repeats: Repeats, bound: string): Log {
  const say = (level: "error" | "info", message: string, fields: LogFields = {}): void => {
    if (!logger.isLevelEnabled(level)) return;
    repeats.say(`${level} ${message}${bound}${keyOf(fields)}`, (repeated) =>
      logger[level](repeated === 0 ? fields : { ...fields, repeated }, message),
    );
  };
  return {
    error: (message, fields) => say("error", message, fields),
    info: (message, fields) => say("info", message, fields),
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    with: (fields) => wrap(logger.child(fields), repeats, `${bound}${keyOf(fields)}`),
  };
}

/** What tells a line from others: its texts. Numbers, and those in a reason, differ from one repetition to the next. */
function keyOf(fields: LogFields): string {
  let key = "";
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value !== "string" || name === "trace_id" || name === "span_id") continue;
    key += `\n${name} ${name === "reason" ? value.replaceAll(/\d+/g, "#") : value}`;
  }
  return key;
}

/** The message of anything that was thrown, with the messages of its causes. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const message = error.message === "" ? error.name : error.message;
  if (error.cause === undefined) return message;
  const cause = reasonOf(error.cause);
  return message.includes(cause) ? message : `${message}: ${cause}`;
}
