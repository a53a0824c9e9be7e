import { maxMessageOption } from "@kpng/backend-kit/backend/backend-options.ts";
import { defaultMessageBytes } from "@kpng/backend-kit/state/item-limits.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { clientOptions, readCredentials } from "@kpng/process/credential-files.ts";
import { parseDurationMs } from "@kpng/process/options.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory.ts";
import { apiSource } from "@kpng/source/api/api-source.ts";
import { connect, kubeOptions } from "./kube.ts";
import { type SourceCommand, staleOption } from "./source-command.ts";

/** `kpng api`: a relay, which reads the whole cluster state from another watcher. */
export const sourceCommand: SourceCommand = {
  name: "api",
  asksServer: true,
  options: [
    {
      flags: "--api <address>",
      description: "upstream watcher: host:port or unix:///path",
      default: "127.0.0.1:12090",
    },
    maxMessageOption,
    staleOption,
    {
      flags: "--accept-older-after <duration>",
      isExpert: true,
      description: "how long to refuse states that are older than the last one, if the watcher offers nothing newer",
      default: 60_000,
      parse: parseDurationMs,
    },
    ...clientOptions("the connection to the upstream watcher"),
    // Options for the API server that reviews tokens, for `to-api --token-audience`.
    ...kubeOptions,
  ],
  examples: `
Examples:
  # a relay for one zone
  kpng api --api watcher.kube-system:12090 to-api --listen unix:///run/kpng/proxy.sock

  # the cluster state of a running watcher, in a file
  kpng api --api 127.0.0.1:12090 to-file -o state.yaml
`,
  connect,
  make: (options, sink, context) => {
    const api = String(options.api ?? "");
    const client = readCredentials(options);
    const maxMessageBytes = Number(options.maxMsgSize ?? defaultMessageBytes(memoryLimitBytes()));
    const redial = () => dial({ api, ...client, maxMessageBytes });
    return apiSource({
      transport: redial(),
      redial,
      acceptOlderAfterMs: options.acceptOlderAfter as number,
      staleAfterMs: options.staleAfter as number,
      sink,
      ...context,
    });
  },
};
