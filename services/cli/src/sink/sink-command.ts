import type { AnswerPage } from "@kpng/process/health/status-server.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { KubeConnection } from "@kpng/watcher/source/kube/connection.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import type { CommandContext, Options } from "../context/command-context.ts";

/**
 * A command that uses the cluster state: `kpng SOURCE … to-NAME`. The sinks are `to-api`, `to-file`, `to-local` and one
 * for each backend; `makeSource` runs them. Separate from `SourceCommand`, the other half of such a command, because
 * every source can be combined with every sink.
 */
export interface SinkCommand {
  readonly name: string;
  /** Further names of the command. Default: none. */
  readonly aliases?: readonly string[] | undefined;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** Whether the exit status of a run with these options answers a question; see `BackendCommand`. */
  readonly isQuestion?: ((options: Options) => boolean) | undefined;
  make(options: Options, store: Store, context: SinkContext): Task;
}

/** Context of a sink. */
export interface SinkContext extends CommandContext {
  /** Makes a connection to the API server; undefined if the source has no options for it. */
  readonly connect?: (() => Promise<KubeConnection>) | undefined;
  /** Adds pages to the port of health and metrics; undefined where no such port is served. */
  readonly addPages?: ((pages: AnswerPage) => void) | undefined;
}
