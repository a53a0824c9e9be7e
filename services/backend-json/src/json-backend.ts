import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { formatViewLines } from "@kpng/backend-kit/state/kpng-json.ts";
import { writeAll } from "@kpng/process/run/write-all.ts";

/**
 * The backend `json`: prints the node's whole view whenever it changes, as one line of JSON per Service. People and
 * tests use it to look at a view.
 *
 * The program kpng-json (`main.ts`), `kpng SOURCE to-json` and `kpng local to-json` run this backend.
 */
export const jsonBackend: BackendCommand = {
  name: "json",
  description: "print the node's view as JSON, one object per Service, whenever it changes",
  options: [],
  examples: `
Examples:
  # the current view of node n1
  COMMAND --node-name n1 --once

  # cluster IPs of all Services without endpoints for this node
  COMMAND --once | jq -r 'select(.Endpoints == null) | .Service.IPs.ClusterIPs'
`,
  makeTask: (_options, context) =>
    backendTask({
      ...context,
      name: "json",
      onState: (view, signal) => writeAll(process.stdout, formatViewLines(view), signal),
    }),
};
