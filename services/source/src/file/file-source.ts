import type { Health } from "@kpng/process/health/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { Registry } from "prom-client";
import type { DecodeOptions } from "../decode/decoded.ts";
import type { ClusterSink, Source } from "../source.ts";
import { beginInvalid, type InvalidCounter, makeInvalidCounter } from "../source-metrics.ts";
import { WatcherError } from "../watcher-error.ts";
import type { InputProblem } from "./input-content.ts";
import { type InputFilesOptions, type LoadedInput, listInputFiles, loadInput } from "./input-files.ts";
import { type InputResult, readInput } from "./read-inputs.ts";

/** Options of {@link fileSource}, which serves a cluster from files. */
export interface FileSourceOptions extends Pick<InputFilesOptions, "maxBytes" | "standardInput"> {
  /** Files, folders, or "-" for standard input, which is read once. */
  readonly inputs: readonly string[];
  readonly sink: Pick<ClusterSink, "replace">;
  readonly decode: DecodeOptions;
  /** True to leave out invalid objects instead of rejecting the input. Default false. */
  readonly skipsBad?: boolean | undefined;
  /**
   * Receives warnings about a valid input, e.g. that objects were left out or that there are no objects at all.
   * Default: the log, which has no level for warnings, at level error.
   */
  readonly warn?: Log["error"] | undefined;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Interval at which files are polled for changes, in milliseconds. Default 200. */
  readonly pollMs?: number | undefined;
  /** Time for which files must be unchanged before they are read, in milliseconds. Default 50. */
  readonly debounceMs?: number | undefined;
}

const part = "source/file";

/** Health part of objects that a query left out; `kpng file analyze` reports it. */
const objectsPart = "objects/file";

/**
 * Time after which an empty file or folder is taken to mean an empty cluster, in milliseconds. Many programs truncate a
 * file before they write it, or recreate a folder and then fill it.
 */
const emptiedMs = 1_000;

/**
 * Time for which inputs may change without a pause before they are read all the same, in milliseconds: long enough to copy
 * a large file, and short enough for an input that never rests.
 */
const unsettledMs = 5_000;

/** Maximum pause that a slow poll can cause before the next one, in milliseconds. */
const maxPauseMs = 2_000;

/** Maximum number of problems that health names, as for the objects of an API server. */
const maxNamed = 3;

/** Maximum number of problems and notes that are logged or named in an error. */
const maxProblems = 20;

/**
 * Fills the sink from files and folders, and follows their changes. The files together are a whole cluster: kinds that
 * no file contains are empty. While any file is invalid, the last valid state stays in effect, and the log, health and
 * metrics report the problems. Errors: BAD_INPUT if the files are invalid at the start.
 */
export function fileSource(options: FileSourceOptions): Source {
  const follower = new FileFollower(options);
  return { name: part, run: (signal) => follower.run(signal) };
}

class FileFollower {
  readonly #options: FileSourceOptions;
  readonly #invalid: InvalidCounter;
  /** Contents of standard input and pipes, which can be read only once and are part of every later state. */
  readonly #streams = new Map<string, Uint8Array>();
  /** Times, sizes and inodes of all files when they were last polled. */
  #stamps = "";

  constructor(options: FileSourceOptions) {
    this.#options = options;
    this.#invalid = makeInvalidCounter(options.metrics);
    beginInvalid(this.#invalid, "files");
  }

  async run(signal: AbortSignal): Promise<void> {
    const { health, pollMs = 200 } = this.#options;
    health.setWaiting(part, "reading the input");
    // This comes before the first read, so that no change is missed.
    await this.#hasChanged();
    const first = this.#take(await this.#load(signal), wallClockMs(), signal);
    if (first?.kind === "bad") throw badInput(first.problems);
    for (let tookMs = 0; ; ) {
      // Polling takes at most a twentieth of the time, unless a busy machine slows it down.
      await waitMs(Math.max(pollMs, Math.min(20 * tookMs, maxPauseMs)), signal);
      if (signal.aborted) return;
      const beganMs = performance.now();
      const hasChanged = await this.#hasChanged();
      tookMs = performance.now() - beganMs;
      if (!hasChanged) continue;
      const changedAtMs = wallClockMs();
      this.#take(await this.#loadSettled(signal), changedAtMs, signal);
    }
  }

  /**
   * Returns true if the times, size or inode of any file have changed since the last call. The files are polled, because
   * network file systems and replaced folders send no events.
   */
  async #hasChanged(): Promise<boolean> {
    const { files, failures } = await listInputFiles(this.#options.inputs);
    const before = this.#stamps;
    this.#stamps = JSON.stringify([files.map(({ file, stamp }) => [file, stamp]), failures]);
    return this.#stamps !== before;
  }

  /**
   * Loads the inputs when they have not changed for the debounce time, and not while they were read. If they never rest,
   * loads them as they are after {@link unsettledMs}.
   */
  async #loadSettled(signal: AbortSignal): Promise<LoadedInput> {
    const { debounceMs = 50 } = this.#options;
    const endMs = performance.now() + unsettledMs;
    const mayWait = (): boolean => !signal.aborted && performance.now() < endMs;
    for (let wasEmptied = false; ; ) {
      do await waitMs(debounceMs, signal);
      while (mayWait() && (await this.#hasChanged()));
      const loaded = await this.#load(signal);
      const isEmptied = loaded.fileCount === 0 || loaded.texts.some(({ text }) => text === "");
      if (isEmptied && !wasEmptied) await waitMs(emptiedMs, signal);
      else if (!mayWait() || !(await this.#hasChanged())) return loaded;
      wasEmptied = isEmptied;
    }
  }

  #load(signal: AbortSignal): Promise<LoadedInput> {
    return loadInput(this.#options.inputs, { ...this.#options, streams: this.#streams, signal });
  }

  /** Passes the objects to the sink. */
  #take(loaded: LoadedInput, receivedAtMs: number, signal: AbortSignal): InputResult | undefined {
    const { inputs, sink, decode, skipsBad, log, health, warn = (...line) => log.error(...line) } = this.#options;
    if (signal.aborted) return undefined;
    const result = readInput(loaded, decode, skipsBad);
    if (result.kind === "bad") {
      this.#invalid.inc({ kind: "files", skipped: "object" }, result.problems.length);
      const [first] = result.problems;
      health.setFailing(part, first === undefined ? "invalid input" : describe(first));
      for (const problem of result.problems.slice(0, maxProblems)) {
        log.error("invalid input file", { ...problem });
      }
      return result;
    }
    for (const note of result.notes.slice(0, maxProblems))
      log.info("note about an input file", { at: note.at, note: note.problem });
    this.#invalid.inc({ kind: "files", skipped: "part" }, result.skipped.length);
    for (const skipped of result.skipped.slice(0, maxProblems)) {
      warn("invalid part of an input file skipped", { ...skipped });
    }
    sink.replace(result.objects, { source: "file", receivedAtMs });
    health.setReady(part);
    if (result.skipped.length > 0) {
      const named = result.skipped.slice(0, maxNamed).map(describe);
      if (result.skipped.length > maxNamed) named.push(`and ${result.skipped.length - maxNamed} more`);
      health.set(objectsPart, { isHealthy: true, isReady: true, reason: `invalid: ${named.join(", ")}` });
    }
    const { services, slices, nodes } = result.objects;
    if (!services?.length && !slices?.length && !nodes?.length) {
      warn("the input has no Service, EndpointSlice or Node", { inputs: inputs.join(",") });
    }
    log.info("input read", {
      files: loaded.fileCount,
      services: services?.length,
      slices: slices?.length,
      nodes: nodes?.length,
    });
    return result;
  }
}

function badInput(problems: readonly InputProblem[]): WatcherError {
  const listed = problems.slice(0, maxProblems).map(describe);
  const more = problems.length - listed.length;
  if (more > 0) listed.push(`${more} more problems`);
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  return new WatcherError("BAD_INPUT", `invalid input, ${count}: ${listed.join("; ")}`);
}

function describe({ at, problem }: InputProblem): string {
  return `${at}: ${problem}`;
}
