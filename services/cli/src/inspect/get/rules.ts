import { createClient } from "@connectrpc/connect";
import { BackendInspectService, RuleLinesSchema } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { isTable, outputOptions, printMessages, readOutputOptions } from "../print/output.ts";
import { oneLine } from "../print/terminal-text.ts";
import { parseFilter, parseServiceKey } from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { backendExamples } from "./backend.ts";

/**
 * `kpng get rules`: prints the rules that a backend wants or has, one per line. `makeInspect` adds it. Separate from
 * `backendCommand`, which shows only how many rules there are: these lines are no table.
 */
export const rulesCommand: InspectCommand = {
  name: "rules",
  description: "rules that a backend of this node wants, or has in the kernel",
  argument: "[rule-set]",
  parseArgument: parseFilter,
  options: [
    {
      flags: "--service <namespace/name>",
      description: "print only the rules that serve this Service",
      default: "",
      parse: parseServiceKey,
    },
    { flags: "--actual", description: "print the rules in the kernel, not the desired ones" },
    ...outputOptions,
  ],
  examples: backendExamples,
  run: async (transport, [ruleSet = ""], options) => {
    const output = await readOutputOptions(options);
    const { ruleSets } = await createClient(BackendInspectService, transport).listRules({
      ruleSet,
      service: String(options.service ?? ""),
    });
    if (ruleSets.length === 0 && ruleSet !== "") {
      throw new ProcessError("REQUEST_FAILED", `rule set "${ruleSet}" not found; omit the name to print all`);
    }
    if (!isTable(output)) return printMessages(RuleLinesSchema, ruleSets, output);
    for (const { name, desired, actual } of ruleSets) {
      if (output.hasHeaders) output.write(`# ${name}\n`);
      for (const line of options.actual === true ? actual : desired) output.write(`${oneLine(line)}\n`);
    }
  },
};
