import { pino } from "pino";

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

/** Returns a log on standard error; `write` takes its lines instead where a test reads them. */
export function createLog(level: LogLevel = "info", write?: (line: string) => void): Log {
  // Synchronous: a line that explains a crash must be out before the process is gone.
  const destination = write === undefined ? pino.destination({ dest: 2, sync: true }) : { write };
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return wrap(pino(options, destination));
}

function wrap(logger: pino.Logger): Log {
  return {
    error: (message, fields) => logger.error(fields ?? {}, message),
    info: (message, fields) => logger.info(fields ?? {}, message),
    debug: (message, fields) => logger.debug(fields ?? {}, message),
    with: (fields) => wrap(logger.child(fields)),
  };
}

/** The message of anything that was thrown, with the messages of its causes. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const message = error.message === "" ? error.name : error.message;
  if (error.cause === undefined) return message;
  const cause = reasonOf(error.cause);
  return message.includes(cause) ? message : `${message}: ${cause}`;
}
