import type { Writable } from "node:stream";
import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { backendTask } from "@kpng/backend-kit/backend/backend-task.ts";
import { formatViewLines } from "@kpng/backend-kit/state/kpng-json.ts";

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
      onState: (view) => writeAll(process.stdout, formatViewLines(view)),
    }),
};

/** Writes chunks in order, and waits for a slow reader. Resolves when the last one is written. */
export async function writeAll(stream: Writable, chunks: Iterable<string>): Promise<void> {
  let block = "";
  for (const chunk of chunks) {
    block += chunk;
    if (block.length >= blockLength) {
      await write(stream, block);
      block = "";
    }
  }
  if (block !== "") await write(stream, block);
}

/** Minimum size of a write, in characters. 10 000 small writes would cost more than formatting their lines. */
const blockLength = 64 * 1024;

function write(stream: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}
