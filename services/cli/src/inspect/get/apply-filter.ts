import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { type OptionSpec, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import type { Options } from "../../context/command-context.ts";
import { parseFilter } from "../query/filter-options.ts";
import type { InspectClient } from "../query/inspect-client.ts";

const stateNames: ReadonlyMap<string, ApplyState> = new Map([
  ["current", ApplyState.CURRENT],
  ["received", ApplyState.RECEIVED],
  ["behind", ApplyState.BEHIND],
  ["failing", ApplyState.FAILING],
  ["absent", ApplyState.ABSENT],
  ["unknown", ApplyState.UNKNOWN],
]);

const stateWords = "current, received, behind, failing, absent or unknown";

const stateOption = repeatable("--state <state>", `only this state: ${stateWords}`);

/**
 * Options that select nodes and subscribers by the revision that they have applied. The commands `kpng get nodes` and
 * `kpng get subscribers` share them. Separate from `filter-options.ts`, whose options other commands have too.
 */
export const applyFilterOptions: readonly OptionSpec[] = [
  {
    flags: "--not-applied <revision>",
    description: "only if this revision is not applied",
    default: 0,
    parse: parseWholeNumber("--not-applied", 1, Number.MAX_SAFE_INTEGER),
  },
  {
    ...stateOption,
    parse: (text, previous) => {
      parseFilter(text);
      const wrong = text.split(",").find((state) => state !== "" && !stateNames.has(state));
      if (wrong !== undefined) throw new InvalidArgumentError(`unknown state "${wrong}": expected ${stateWords}`);
      return stateOption.parse?.(text, previous);
    },
  },
];

/**
 * Refuses a revision of `--not-applied` that the watcher has not reached: every node would seem to lack it. Revisions
 * count from 1 in each run of a watcher, so it is probably one of an earlier run. Errors: BAD_OPTION.
 */
export async function checkRevision(client: InspectClient, { notApplied }: Options): Promise<void> {
  if (Number(notApplied) === 0) return;
  const { revision } = await client.getStatus({});
  if (BigInt(Number(notApplied)) <= revision) return;
  const limit = `the watcher is at revision ${revision}, counted from its start`;
  throw new ProcessError("BAD_OPTION", `--not-applied ${notApplied} does not exist yet: ${limit}`);
}

/** The values of {@link applyFilterOptions}, as fields of a request. */
export function applyFilterOf(options: Options): { notAppliedRevision: bigint; states: ApplyState[] } {
  return {
    notAppliedRevision: BigInt(Number(options.notApplied)),
    states: (options.state as readonly string[]).flatMap((name) => stateNames.get(name) ?? []),
  };
}
