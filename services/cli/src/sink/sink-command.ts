import type { OptionSpec } from "@kpng/process/options.ts";
import type { Task } from "@kpng/process/task.ts";
import type { KubeConnection } from "@kpng/watcher/source/kube/client/connection.ts";
import type { Store } from "@kpng/watcher/store/store.ts";
import type { CommandContext, Options } from "../context/command-context.ts";

/**
 * A command that uses the cluster state: `kpng SOURCE … to-NAME`. The sinks are `to-api`, `to-file`, `to-local` and one
 * for each backend; `commands/source.ts` runs them. `SourceCommand` is the other half of such a command.
 */
export interface SinkCommand {
  readonly name: string;
  /** Further names of the command. Default: none. */
  readonly aliases?: readonly string[] | undefined;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** As in BackendCommand. */
  readonly isQuestion?: ((options: Options) => boolean) | undefined;
  make(options: Options, store: Store, context: SinkContext): Task;
}

/** Context of a sink. */
export interface SinkContext extends CommandContext {
  /** Makes a connection to the API server that the source reads from; undefined if it reads no API server. */
  readonly connect?: (() => Promise<KubeConnection>) | undefined;
}
