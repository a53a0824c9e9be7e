import { addOptions, type OptionSpec, parseWholeNumber } from "@kpng/process/options.ts";
import { Command } from "commander";
import { readApiClient } from "../context/api-client.ts";
import type { Options } from "../context/command-context.ts";
import { checkPage, serveDashboard } from "../dashboard/serve-dashboard.ts";
import { WatcherSession } from "../dashboard/watcher-session.ts";
import { withPlainErrors } from "./plain-errors.ts";
import { remoteOptions } from "./remote-options.ts";

const dashboardOptions: readonly OptionSpec[] = [
  {
    flags: "--port <number>",
    description: "port on 127.0.0.1 for the browser; 0 for a free one",
    default: 0,
    parse: parseWholeNumber("--port", 0, 65_535),
  },
];

/**
 * `kpng dashboard`: serves the status page of a watcher to a browser on this machine, with the certificate or token of
 * the caller, because a browser has none. `makeKpng` adds it. Separate from the folder `dashboard/`, which serves: this
 * file has only the command line.
 */
export function makeDashboard(signal: AbortSignal): Command {
  return addOptions(new Command("dashboard"), [...dashboardOptions, ...remoteOptions])
    .description("show the status page of a watcher in a browser on this machine, with the caller's credentials")
    .addHelpText(
      "after",
      `
The printed address contains a random word. Everyone with this address sees what the caller may see, until the command
ends.

Examples:
  kpng dashboard
  kpng dashboard --api https://10.0.0.11:12090 --tls-ca ca.crt \\
    --tls-key operator.key --tls-crt operator.crt
  ssh -L 8001:127.0.0.1:8001 node1 kpng dashboard --port 8001 --api unix:///run/kpng.sock
`,
    )
    .action((_options, self: Command) => {
      const options: Options = self.optsWithGlobals();
      return withPlainErrors(() => run(options, signal));
    });
}

async function run(options: Options, signal: AbortSignal): Promise<void> {
  const api = String(options.api);
  const watcher = new WatcherSession({ api, ...readApiClient(options) });
  try {
    await checkPage(watcher, api, signal);
    if (signal.aborted) return;
    const onListening = (url: string): void => {
      process.stdout.write(`${url}\n`);
      process.stderr.write("Open this address in a browser on this machine. Ctrl-C ends it.\n");
    };
    await serveDashboard({ watcher, port: Number(options.port), onListening }, signal);
  } finally {
    watcher.close();
  }
}
