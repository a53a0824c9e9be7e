import type { Health } from "@kpng/process/health.ts";
import type { Log } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import { Counter, type Registry } from "prom-client";
import { WatcherError } from "../../watcher-error.ts";
import type { DecodeOptions } from "../decode/decode-options.ts";
import type { ClusterSink, Source } from "../source.ts";
import type { InputFilesOptions } from "./input/input-files.ts";
import { InputWatch, type WatchFolder } from "./input/input-watch.ts";
import { type InputProblem, type InputResult, showPlace } from "./input-result.ts";
import { loadInput } from "./read-input.ts";

export interface FileSourceOptions extends Pick<InputFilesOptions, "maxBytes" | "standardInput"> {
  /** Files, folders, or "-" for standard input, which is read once. */
  readonly inputs: readonly string[];
  readonly sink: ClusterSink;
  readonly decode: DecodeOptions;
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Registry;
  /** Longest time, in milliseconds, until a change that no event announced is seen. Default 1 000. */
  readonly pollMs?: number | undefined;
  /** Time that a change is left to settle, in milliseconds. Default 50. */
  readonly debounceMs?: number | undefined;
  /** Default fs.watch. */
  readonly watchFolder?: WatchFolder | undefined;
}

const part = "source/file";

/**
 * Time, in milliseconds, that a file may be without a byte, or a folder without a file, before that counts: many programs,
 * KPNG among them, write in place, a folder is made anew and then filled, and nothing at all is an empty cluster.
 */
const emptiedMs = 1_000;

/** How many problems of one reading are logged or put into an error. */
const maxProblems = 20;

/**
 * Serves the objects of files, and follows the files as they change: edited, replaced, deleted and made anew, a folder
 * that gains or loses one, a ConfigMap whose content is swapped.
 *
 * Files that are bad, all or one of them, leave the last good state as it is; log, health and metrics say so.
 *
 * Errors: BAD_INPUT if the files are bad at the start, when there is no state to keep.
 */
export function fileSource(options: FileSourceOptions): Source {
  const metrics = makeMetrics(options.metrics);
  return { name: part, run: (signal) => new FileReader(options, metrics).run(signal) };
}

interface FileSourceMetrics {
  readonly loads: Counter<"source" | "result">;
  readonly errors: Counter<"source">;
}

function makeMetrics(registry: Registry): FileSourceMetrics {
  const registers = [registry];
  const loads = new Counter({
    name: "kpng_source_loads_total",
    help: "Readings of changed input, by result: ok or bad.",
    labelNames: ["source", "result"] as const,
    registers,
  });
  const errors = new Counter({
    name: "kpng_source_errors_total",
    help: "Problems that a source met.",
    labelNames: ["source"] as const,
    registers,
  });
  for (const result of ["ok", "bad"]) loads.inc({ source: "file", result }, 0);
  errors.inc({ source: "file" }, 0);
  return { loads, errors };
}

class FileReader {
  readonly #options: FileSourceOptions;
  readonly #metrics: FileSourceMetrics;
  /** Standard input ends only once: what it said counts for every later reading too. */
  readonly #streams = new Map<string, Uint8Array>();
  #digest: string | undefined;

  constructor(options: FileSourceOptions, metrics: FileSourceMetrics) {
    this.#options = options;
    this.#metrics = metrics;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { inputs, health, pollMs = 1_000, debounceMs = 50, watchFolder } = this.#options;
    health.setWaiting(part, "reading the input");
    const watch = new InputWatch(inputs, watchFolder);
    try {
      await watch.start();
      const first = await this.#read(signal, wallClockMs());
      if (signal.aborted) return;
      if (typeof first === "object" && first.kind === "bad") throw badInput(first.problems);
      while (await watch.changed(pollMs, signal)) {
        const changedAtMs = wallClockMs();
        await watch.settle(debounceMs, signal);
        if (signal.aborted) return;
        if ((await this.#read(signal, changedAtMs, "unless emptied")) !== "emptied") continue;
        await waitMs(emptiedMs, signal);
        if (signal.aborted) return;
        await this.#read(signal, changedAtMs);
      }
    } finally {
      watch.close();
    }
  }

  /**
   * Reads the input and hands it on. Undefined if nothing has changed since the last reading, or the signal has aborted;
   * "emptied" if a file has no bytes and that was to be told instead.
   */
  async #read(
    signal: AbortSignal,
    receivedAtMs: number,
    how?: "unless emptied",
  ): Promise<InputResult | "emptied" | undefined> {
    const { inputs, sink, log, health } = this.#options;
    const loaded = await loadInput(inputs, { ...this.#options, streams: this.#streams, signal });
    if (signal.aborted || loaded.digest === this.#digest) return undefined;
    if (how === "unless emptied" && loaded.isEmptied) return "emptied";
    this.#digest = loaded.digest;
    const result = loaded.read();
    this.#metrics.loads.inc({ source: "file", result: result.kind });
    if (result.kind === "bad") {
      this.#metrics.errors.inc({ source: "file" }, result.problems.length);
      const [first] = result.problems;
      health.setFailing(part, first === undefined ? "the input is bad" : describe(first));
      for (const problem of result.problems.slice(0, maxProblems)) {
        log.error("input is bad", { at: showPlace(problem), problem: problem.problem });
      }
      return result;
    }
    for (const { level, note, ...place } of result.notes) log[level]("input note", { at: showPlace(place), note });
    sink.replace(result.objects, { source: "file", receivedAtMs });
    health.setReady(part);
    const { services, slices, nodes } = result.objects;
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
  if (more > 0) listed.push(`and ${more} more`);
  const count = problems.length === 1 ? "a problem" : `${problems.length} problems`;
  return new WatcherError("BAD_INPUT", `the input has ${count}: ${listed.join("; ")}`);
}

function describe(problem: InputProblem): string {
  return `${showPlace(problem)}: ${problem.problem}`;
}
