import type { ProxyAlternative } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import { parseDurationMs, parsePositiveDurationMs } from "@kpng/process/options.ts";
import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";
import { shadowTask } from "./shadow-task.ts";

/**
 * The option `--shadow` of a backend: reports the packets that kube-proxy's rules on this node treat differently from
 * the plan that the backend would install. `mode` is the mode of kube-proxy that the backend behaves like; if
 * kube-proxy has no rules of this mode, its rules of the other mode are compared.
 *
 * `iptablesBackend` and `nftBackend` pass the result to `proxyBackend`. Separate from `shadowTask`, which does the
 * work: this file only declares options.
 */
export function shadowMode(backend: string, mode: ProxyMode): ProxyAlternative {
  return {
    name: "shadow",
    options: [
      {
        flags: "--shadow",
        description:
          "change nothing; tell where kube-proxy's rules on this node treat packets differently from our plan",
      },
      {
        flags: "--shadow-interval <duration>",
        description: "with --shadow: time between two comparisons",
        default: 10_000,
        parse: parsePositiveDurationMs,
      },
      {
        flags: "--shadow-settle <duration>",
        description:
          "with --shadow: how long a difference must last to be told; one proxy is always the first with a change",
        default: 5_000,
        parse: parseDurationMs,
      },
    ],
    isQuestion: ({ once }) => once === true,
    makeTask: (options, settings, context) =>
      shadowTask({
        name: backend,
        settings,
        context,
        mode,
        variant:
          options.iptablesVariant === "nft" || options.iptablesVariant === "legacy" ? options.iptablesVariant : "auto",
        timeoutMs: Number(options.iptablesTimeout ?? options.nftTimeout ?? 300_000),
        intervalMs: Number(options.shadowInterval ?? 10_000),
        settleMs: Number(options.shadowSettle ?? 5_000),
        format: options.output === "json" || options.output === "yaml" ? options.output : "table",
        print: (text) => void process.stdout.write(text),
        onVerdict: (isSame) => {
          process.exitCode = isSame ? 0 : 1;
        },
      }),
  };
}
