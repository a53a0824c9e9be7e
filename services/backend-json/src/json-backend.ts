import type { BackendCommand } from "@kpng/backend-kit/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend-task.ts";
import { formatViewLines } from "@kpng/backend-kit/state/kpng-json.ts";
import { writeAll } from "./write-all.ts";

/** Prints the whole view after each sync marker that changed it: one JSON object a line for each Service. */
export const jsonBackend: BackendCommand = {
  name: "json",
  description: "print what the node must do as JSON, one object per Service, whenever it changes",
  options: [],
  examples: `
Examples:
  # what node n1 is told now
  COMMAND --node-name n1 --once

  # the addresses of all Services that have no endpoint for this node
  COMMAND --once | jq -r 'select(.Endpoints == null) | .Service.IPs.ClusterIPs'
`,
  makeTask: (_options, context) =>
    backendTask({
      ...context,
      name: "json",
      onState: (view) => writeAll(process.stdout, formatViewLines(view)),
    }),
};
