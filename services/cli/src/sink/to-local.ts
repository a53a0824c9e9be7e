import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { followOptions, readFollowOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { localTransport } from "@kpng/watcher/stream/serve/routes.ts";
import { readProxyNames } from "../source/proxy-names.ts";
import { routesOptions } from "./routes-options.ts";
import type { SinkCommand } from "./sink-command.ts";

/**
 * Runs a backend in this process; it gets the same messages as over the network. This is the sink `kpng SOURCE to-local
 * to-NAME` for backends that are built into `kpng`. `makeSource` calls it for each of them. Separate from `toExternal`,
 * which starts a program.
 */
export function toLocal(backend: BackendCommand): SinkCommand {
  return {
    name: `to-${backend.name}`,
    aliases: backend.aliases?.map((alias) => `to-${alias}`),
    description: backend.description,
    examples: backend.examples,
    isQuestion: backend.isQuestion,
    // The source already has the option --service-proxy-name.
    options: [...backend.options, ...followOptions.filter(({ flags }) => !flags.startsWith("--service-proxy-name"))],
    make: (options, store, context) => {
      const names = readProxyNames(options);
      // The view comes from this process, which holds the same data anyway.
      const unlimited = { maxViewSize: Number.POSITIVE_INFINITY };
      const follow = readFollowOptions({ ...options, ...unlimited, serviceProxyName: names[0] ?? "" });
      const stop = new AbortController();
      const transport = localTransport(routesOptions(names, store, context), stop.signal);
      const task = backend.makeTask(options, { ...context, ...follow, transport });
      return { name: task.name, run: (signal) => task.run(signal).finally(() => stop.abort()) };
    },
  };
}
