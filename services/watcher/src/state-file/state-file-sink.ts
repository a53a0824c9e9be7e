import type { EndpointSlice } from "@kpng/model/endpoint.ts";
import { endpointInfoHash } from "@kpng/model/wire/global-message.ts";
import type { Health } from "@kpng/process/health/health.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { Task } from "@kpng/process/task.ts";
import { waitMs } from "@kpng/process/wait.ts";
import type { ClusterObjects } from "../source/source.ts";
import type { Snapshot } from "../store/snapshot.ts";
import type { Store } from "../store/store.ts";
import { formatState } from "./format-state.ts";
import { writeFileAtomically } from "./write-file-atomically.ts";

/**
 * Writes the cluster state to a file in KPNG's format after each revision: the sink `to-file`. Revisions that arrive
 * during a write are coalesced into one further write.
 *
 * The file is replaced atomically, so readers see a complete state. A failed write (disk full, no permission) is
 * logged, reported in health, and retried.
 *
 * `kpng SOURCE to-file` runs it. This file decides when to write; `formatState` makes the text, and
 * `writeFileAtomically` replaces the file.
 */
export function stateFileSink(options: StateFileOptions): Task {
  return { name: part, run: (signal) => run(options, signal) };
}

/** Options of {@link stateFileSink}. */
export interface StateFileOptions {
  readonly store: Store;
  /** File to write, or "-" for standard output. */
  readonly path: string;
  /** True to end after the first state. Default false; always for standard output. */
  readonly isOnce?: boolean | undefined;
  readonly log: Log;
  readonly health: Health;
}

const part = "sink/file";

/** Delay before a failed write is retried, in milliseconds. */
const retryMs = 1_000;

async function run({ store, path, isOnce, log, health }: StateFileOptions, signal: AbortSignal): Promise<void> {
  let written = 0;
  health.setWaiting(part, "waiting for the cluster state");
  for (;;) {
    const snapshot = await store.next(written, signal);
    if (snapshot === undefined) return;
    const text = formatState(objectsOf(snapshot), endpointInfoHash);
    if (path === "-") {
      process.stdout.write(text);
      return;
    }
    try {
      await writeFileAtomically(path, text);
      written = snapshot.revision;
      health.setReady(part);
      log.info("state written", { path, revision: written });
      if (isOnce === true) return;
    } catch (error) {
      health.setFailing(part, reasonOf(error));
      log.error("writing the state failed, retrying", { path, revision: snapshot.revision, reason: reasonOf(error) });
      await waitMs(retryMs, signal);
    }
  }
}

function objectsOf(snapshot: Snapshot): ClusterObjects {
  const slices: EndpointSlice[] = [];
  for (const some of snapshot.slicesByService.values()) slices.push(...some);
  return { services: [...snapshot.services.values()], slices, nodes: [...snapshot.nodes.values()] };
}
