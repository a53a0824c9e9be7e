import { type Family, families } from "@kpng/model/address.ts";
import type { Task } from "@kpng/process/task.ts";
import type { BackendContext } from "../backend/backend-command.ts";
import { backendTask } from "../backend/backend-task.ts";
import { makeFormatObject, type ObjectFormat } from "./object-format.ts";
import type { ProxyHost } from "./proxy-host.ts";
import type { ServiceProxy } from "./proxy-spec.ts";
import type { RuleChange, RuleDifference } from "./rule-set.ts";
import { RuleSets } from "./rule-sets.ts";

/** Options of {@link diffTask}. */
export interface DiffOptions<Change extends RuleChange> {
  /** Name of the backend. */
  readonly name: string;
  readonly proxy: ServiceProxy<Change>;
  /** With destination "nowhere". */
  readonly host: ProxyHost;
  readonly context: BackendContext;
  readonly format: "table" | ObjectFormat;
  readonly print: (text: string) => void;
}

type FamilyDifference = RuleDifference & { readonly family: Family };

/**
 * The task behind `--diff` of a service proxy: compares the installed rules once with the rules that the view requires,
 * prints the differences, and sets the exit status to 0 (no difference) or 1.
 *
 * `proxyBackend` returns it if `--diff` is given.
 *
 * Rejects with the error of `openRuleSets`, with NO_VIEW if no watcher answers in time, or with the error of reading
 * the rules.
 */
export function diffTask<Change extends RuleChange>(options: DiffOptions<Change>): Task {
  return { name: `backend/${options.name}/diff`, run: (signal) => run(options, signal) };
}

async function run<Change extends RuleChange>(options: DiffOptions<Change>, signal: AbortSignal): Promise<void> {
  const { name, proxy, host, context, format, print } = options;
  const found: FamilyDifference[] = [];
  const { ruleSets } = await proxy.openRuleSets(host);
  const rules = new RuleSets({
    settings: host.settings,
    ruleSets,
    onOutcome: ({ family, result }) => {
      if (result.kind !== "done") return;
      found.push(...result.change.differences().map((difference) => ({ family, ...difference })));
    },
    log: context.log,
    localAddresses: host.localAddresses,
  });
  let outcome: { readonly cause?: unknown } | undefined;
  const onChanges = async ({ view }: { readonly view: Parameters<typeof rules.sync>[0] }): Promise<void> => {
    // A failure is an answer, too, and is not repeated.
    outcome = (await rules.sync(view, "all", { committing: () => undefined })).failure ?? {};
  };
  await backendTask({ ...context, name: `${name}-diff`, isOnce: true, state: undefined, onChanges }).run(signal);
  await rules.close();
  if (outcome === undefined) return;
  if ("cause" in outcome) throw outcome.cause;
  // The families finish in any order.
  found.sort((a, b) => families.indexOf(a.family) - families.indexOf(b.family));
  print(format === "table" ? formatTable(found) : (await makeFormatObject(format))(formatFields(found), 2));
  process.exitCode = found.length === 0 ? 0 : 1;
}

/** "+" marks rules that a sync would write, "-" rules that it would remove. */
function formatTable(differences: readonly FamilyDifference[]): string {
  if (differences.length === 0) return "no difference\n";
  const blocks = differences.flatMap(({ family, summary, missing, unwanted }) => [
    `${family} ${summary}`,
    ...unwanted.map((rule) => `- ${rule}`),
    ...missing.map((rule) => `+ ${rule}`),
  ]);
  return `${blocks.join("\n")}\n`;
}

function formatFields(found: readonly FamilyDifference[]) {
  return {
    differences: found.map(({ family, fields, missing, unwanted }) => ({ family, ...fields, missing, unwanted })),
  };
}
