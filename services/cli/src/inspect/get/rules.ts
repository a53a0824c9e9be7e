import { createClient } from "@connectrpc/connect";
import { BackendInspectService, RuleLinesSchema } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { outputOptions, printRows, readOutputOptions } from "../print/output.ts";
import { oneLine } from "../print/table.ts";
import { parseFilter } from "../query/filter-options.ts";
import type { InspectCommand } from "../query/inspect-command.ts";
import { backendExamples } from "./backend.ts";

/** `kpng get rules`: the rules that should stand, one a line; what stands otherwise is told by `get backend`. */
export const rulesCommand: InspectCommand = {
  name: "rules",
  description: "the rules that a backend of this node wants to stand, and those that do",
  argument: "[rule-set]",
  parseArgument: parseFilter,
  options: [{ flags: "--actual", description: "those that stand, and not those that should" }, ...outputOptions],
  examples: backendExamples,
  run: async (transport, ruleSet = "", options) => {
    const output = readOutputOptions(options);
    const { ruleSets } = await createClient(BackendInspectService, transport).listRules({ ruleSet });
    if (ruleSets.length === 0 && ruleSet !== "") {
      throw new ProcessError("REQUEST_FAILED", `no rule set is called "${ruleSet}"; without a name all are printed`);
    }
    if (output.format !== "table" && output.format !== "wide") {
      printRows({ schema: RuleLinesSchema, columns: [] }, ruleSets, output);
      return;
    }
    for (const { name, desired, actual } of ruleSets) {
      if (output.hasHeaders) output.write(`# ${name}\n`);
      for (const line of options.actual === true ? actual : desired) output.write(`${oneLine(line)}\n`);
    }
  },
};
