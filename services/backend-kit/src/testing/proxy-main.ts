// Program that `run-backend.slow.test.ts` starts: a service proxy without rules, which shows what the kit does for
// every service proxy. It prints one line for each sync.
import { backendTask } from "../backend/backend-task.ts";
import { runBackendCommand } from "../backend/run-backend.ts";
import { readStateFolder, stateOptions } from "../disk/view-keeper.ts";

await runBackendCommand({
  name: "test",
  description: "prints the mode and the Services of each sync",
  options: [...stateOptions, { flags: "--masquerade-all", description: "is printed" }],
  examples: "",
  proxyMode: "iptables",
  healthPort: () => (process.env.HEALTH_PORT === undefined ? undefined : Number(process.env.HEALTH_PORT)),
  makeTask: (options, context) =>
    backendTask({
      ...context,
      name: "test",
      stateFolder: readStateFolder("test", options, context.log),
      onChanges: ({ mode, view, isFromDisk }) => {
        const what = [mode, isFromDisk === true ? "disk" : "watcher", options.masqueradeAll === true ? "all" : "some"];
        process.stdout.write(`${what.join(" ")}: ${[...view.services.keys()].join(" ")}\n`);
      },
    }),
});
