import { formatCount } from "./print/format.ts";
import { inspectClient } from "./query/inspect-client.ts";
import type { InspectCommand } from "./query/inspect-command.ts";

/**
 * `kpng release`: deletes the objects whose deletion a watcher holds. An operator runs it on the watcher's machine
 * after an intended mass deletion, instead of waiting for a confirming list. `makeInspect` adds it. Each command is a
 * file of its own; this is the only one that changes what a watcher serves.
 */
export const releaseCommand: InspectCommand = {
  name: "release",
  description: "delete the objects that the watcher keeps although a list lacked nearly all of them",
  options: [],
  examples: `
A watcher keeps objects when a list lacks 90 % of a kind (option --brake-hold). kpng top and /healthz of the watcher name
them. Only a unix socket of the watcher (to-api --listen unix:///path) accepts this command.

Examples:
  COMMAND --api unix:///run/kpng.sock
`,
  run: async (transport) => {
    const { releasedCount } = await inspectClient(transport).releaseDeletions({});
    process.stdout.write(`deleted ${formatCount(releasedCount, "object")}\n`);
  },
};
