import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { operationLine } from "@kpng/backend-kit/plan/plan-message.ts";
import { framed, planTask } from "@kpng/backend-kit/plan/plan-task.ts";
import { planOptions, readProxySettings } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import { textOption } from "@kpng/backend-kit/types/parsed-options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { writeAll } from "@kpng/process/run/write-all.ts";
import { runWithMain } from "@kpng/process/task.ts";
import { PlanServer } from "./plan-server.ts";

/**
 * The backend `plan`: passes on what the node must do with each packet, as `proto/kpng/plan/v1` describes it, for
 * programs in any language that make rules from it. It serves plans on a unix socket, or prints them as one operation
 * per line.
 */
export const planBackend: BackendCommand = {
  name: "plan",
  description:
    "print the node's plans (what must happen to each packet), or serve them on a socket, for other programs",
  options: [
    ...planOptions,
    {
      flags: "--socket <path>",
      description: "unix socket on which to serve kpng.plan.v1.PlanService, instead of printing",
    },
  ],
  examples: `
Examples:
  # print the plans once, a JSON object per line
  COMMAND --node-name n1 --once

  # serve them to a program in another language
  COMMAND --node-name n1 --socket /run/kpng/plan.sock

The operations and their fields are documented in proto/kpng/plan/v1/plan.proto.
`,
  makeTask: (options, context) => {
    const settings = readProxySettings(options, false);
    const path = textOption(options, "socket");
    if (path === undefined) {
      return planTask({
        name: "plan",
        settings,
        context,
        deliver: (batch, _state, signal) => writeAll(process.stdout, framed(batch).map(operationLine), signal),
      });
    }
    if (options.once === true)
      throw new ProcessError("BAD_OPTION", "--once would end before a client of --socket can read");
    const server = new PlanServer(path);
    const main = planTask({
      name: "plan",
      settings,
      context,
      deliver: async (batch, state) => server.push(batch, state),
    });
    return { name: main.name, run: (signal) => runWithMain(main, [server.task], signal) };
  },
};
