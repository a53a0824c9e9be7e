import type { OptionSpec } from "@kpng/process/options.ts";
import type { KubeConnection } from "@kpng/watcher/source/kube/connection.ts";
import type { ClusterSink, Source } from "@kpng/watcher/source/source.ts";
import type { CommandContext, Options } from "../context/command-context.ts";

/**
 * A command that reads the objects of the cluster from somewhere: `kpng NAME to-…`. The sources are `kube`, `file`,
 * `api` and `replay`; `makeSource` combines each with every sink. Separate from `SinkCommand`, the other half of such a
 * command, because every source can be combined with every sink.
 */
export interface SourceCommand {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** True if the objects come from a server, which may be unreachable. Default false. */
  readonly asksServer?: boolean | undefined;
  /** Makes a connection to the API server; undefined if the command has no options for it. */
  readonly connect?: ((options: Options) => Promise<KubeConnection>) | undefined;
  make(options: Options, sink: ClusterSink, context: CommandContext): Source;
}
