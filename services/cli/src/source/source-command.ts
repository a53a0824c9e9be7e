import type { OptionSpec } from "@kpng/process/options.ts";
import type { ClusterSink, Source } from "@kpng/watcher/source/source.ts";
import type { CommandContext, Options } from "../context/command-context.ts";

/**
 * A command that reads the objects of the cluster from somewhere: `kpng NAME to-…`. The sources are `kube`, `file`,
 * `api` and `replay`; `commands/source.ts` combines each with every sink.
 */
export interface SourceCommand {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionSpec[];
  readonly examples: string;
  /** True if the objects come from a server, which may be unreachable. Default false. */
  readonly asksServer?: boolean | undefined;
  /** Default of --brake-hold, in milliseconds. Default 0: no brake. */
  readonly brakeHoldMs?: number | undefined;
  make(options: Options, sink: ClusterSink, context: CommandContext): Source;
}
