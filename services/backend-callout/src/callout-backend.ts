import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { operationLine } from "@kpng/backend-kit/plan/plan-message.ts";
import { framed, type PlanBatch, type PlanState, planTask } from "@kpng/backend-kit/plan/plan-task.ts";
import { planOptions, readProxySettings } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import { formatViewLines } from "@kpng/backend-kit/state/kpng-json.ts";
import type { ViewUpdate } from "@kpng/backend-kit/types/sync-update.ts";
import { type OptionSpec, oneOf, parseNonEmptyText, parsePositiveDurationMs } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { inheritedEnvironment, runCallout } from "./commit/run-callout.ts";

/** The program kpng-callout also accepts `--input`, which after `kpng file` is the file's option. */
export const inputOption: OptionSpec = {
  flags: "--callout-input <kind>",
  description:
    "what the program reads: the view, as kpng-json prints it, or the plan, what must happen to each packet, as kpng-plan prints it",
  default: "view",
  parse: oneOf(["view", "plan"]),
};

/**
 * The backend `callout`: runs a program whenever the node's view changes, with the whole view on standard input. With
 * this backend, any script can put a view into effect. The program kpng-callout (`main.ts`) and `kpng SOURCE
 * to-callout` run this backend.
 */
export const calloutBackend: BackendCommand = {
  name: "callout",
  description: "run a program with the node's view on standard input, whenever the view changes",
  options: [
    {
      flags: "--callout <program>",
      description: "path or name of the program, which reads --callout-input from standard input",
      // KPNG's default, which shows what a program would get as input.
      default: "cat",
      parse: parseNonEmptyText,
      env: "CALLOUT",
    },
    {
      flags: "--callout-arg <text>",
      description: "argument for the program, written --callout-arg=-x if it begins with a dash; repeatable",
      default: [],
      parse: (text, previous) => [...(Array.isArray(previous) ? previous : []), text],
    },
    inputOption,
    ...planOptions.map((option) => ({ ...option, isExpert: true })),
    {
      flags: "--timeout <duration>",
      isExpert: true,
      description: "time limit of one run; then the program and its process group are killed",
      default: 30_000,
      parse: parsePositiveDurationMs,
    },
  ],
  examples: `
Examples:
  # print the input of a program
  COMMAND --node-name n1

  # make rules from plans, with kube-proxy's options of --help-all
  COMMAND --callout ./mine.py --callout-input plan --cluster-cidr 10.244.0.0/16

  # run a script, for the Services that name this proxy
  COMMAND --callout ./mine.sh --callout-arg --verbose --service-proxy-name mine

The program has KPNG_NODE_NAME and KPNG_REVISION in its environment. Exit status 0 means that the node agrees with the
input. After any other status the program is run again with the newest view, with delays from --error-delay to 30s.
`,
  makeTask: (options, context) => {
    const program = String(options.callout);
    requireProgram(program);
    const args = (options.calloutArg as readonly string[] | undefined) ?? [];
    const inherited = inheritedEnvironment(process.env);
    const timeoutMs = Number(options.timeout);
    // When this process stops, a run completes within its time limit: half a script is worse than all or none of it.
    const call = async (revision: bigint, input: Iterable<string>): Promise<void> => {
      const env = { ...inherited, KPNG_NODE_NAME: context.nodeName, KPNG_REVISION: String(revision) };
      await runCallout({ program, args, env, input, timeoutMs });
    };
    if (options.calloutInput === "plan") {
      const settings = readProxySettings(options, false);
      const deliver = ({ revision }: PlanBatch, { whole }: PlanState) =>
        call(revision, framed(whole).map(operationLine));
      return planTask({ name: "callout", settings, context, deliver });
    }
    const onChanges = ({ view, revision }: ViewUpdate) => call(revision, formatViewLines(view));
    return backendTask({ ...context, name: "callout", onChanges });
  },
};

/**
 * Checks that the program exists. Errors: BAD_OPTION if no executable file has this path, or this name in a folder of
 * PATH.
 */
function requireProgram(program: string): void {
  const folders = program.includes("/") ? [""] : (process.env.PATH ?? "").split(delimiter);
  const isFound = folders.some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  if (isFound) return;
  const hint = program.includes(" ") ? ": arguments go into --callout-arg, one each" : "";
  throw new ProcessError("BAD_OPTION", `--callout "${program}" is not an executable program${hint}`);
}
