import type { BackendCommand } from "@kpng/backend-kit/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend-task.ts";
import { formatViewLines } from "@kpng/backend-kit/state/kpng-json.ts";
import type { ViewUpdate } from "@kpng/backend-kit/state/view-state.ts";
import { parsePositiveDurationMs, parseSomeText } from "@kpng/process/options.ts";
import { runCallout } from "./commit/run-callout.ts";

/** Runs a program with the whole view on its standard input after each sync marker that changed it. */
export const calloutBackend: BackendCommand = {
  name: "callout",
  description: "run a program with what the node must do on its standard input, whenever it changes",
  options: [
    {
      flags: "--callout <program>",
      description: "path or name of the program; it reads one JSON object per Service, as kpng-json prints them",
      // KPNG's default: without a program of one's own, one sees what it would read.
      default: "cat",
      parse: parseSomeText,
      env: "CALLOUT",
    },
    {
      flags: "--callout-arg <text>",
      description: "an argument for the program; repeatable; --callout-arg=-x for one that begins with a dash",
      default: [],
      parse: (text, previous) => [...(Array.isArray(previous) ? previous : []), text],
    },
    {
      flags: "--timeout <duration>",
      description: "longest time the program may take; then it is killed with all that it started",
      default: 30_000,
      parse: parsePositiveDurationMs,
    },
  ],
  examples: `
Examples:
  # print what a program would be given
  COMMAND --node-name n1

  # a script of one's own, for Services that ask for it
  COMMAND --callout ./all-ip.sh --callout-arg --verbose --service-proxy-name allip

The program finds KPNG_NODE_NAME and KPNG_REVISION in its environment. Exit 0 means that the node now does what the
input says; after anything else it is run again, with delays from --error-delay to 30s, on what is newest by then.
`,
  makeTask: (options, context) => {
    const program = String(options.callout);
    const args = (options.calloutArg as readonly string[] | undefined) ?? [];
    const timeoutMs = Number(options.timeout);
    const onChanges = async ({ view, revision }: ViewUpdate): Promise<void> => {
      const env = { KPNG_NODE_NAME: view.nodeName, KPNG_REVISION: String(revision) };
      const stderr = await runCallout({ program, args, env, input: formatViewLines(view), timeoutMs });
      if (stderr !== "") context.log.info("program wrote to standard error", { program, stderr });
    };
    return backendTask({ ...context, name: "callout", onChanges });
  },
};
