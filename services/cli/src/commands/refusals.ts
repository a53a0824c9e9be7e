import type { Command } from "commander";

/** Words that users of kubectl or kube-proxy type. */
interface Refusal {
  readonly words: readonly string[];
  /** Clause that completes 'kpng has no "delete": …'. */
  readonly reason: string;
  readonly instead: string;
}

const refusals: readonly Refusal[] = [
  {
    words: ["apply", "create", "delete", "edit", "patch", "replace", "scale", "label", "annotate", "expose", "rollout"],
    reason: "kpng never writes to the API server",
    instead: "use kubectl; then `kpng trace` shows when the change reached the nodes",
  },
  {
    words: ["logs"],
    reason: "kpng does not read the logs of pods",
    instead: "`kubectl logs -n kube-system ds/kpng-nft`; `kpng status` shows errors of nodes",
  },
  {
    words: ["exec", "attach", "debug", "port-forward"],
    reason: "kpng opens no connection to pods other than its own",
    instead: "use kubectl; `kpng explain` says where a packet to a Service goes",
  },
  {
    words: ["pods", "pod", "po"],
    reason: "a watcher knows pods only as endpoints of Services",
    instead: "`kpng get endpoints POD`, `kpng get view NODE`",
  },
  {
    words: ["all", "namespaces", "ns", "deployments", "deploy", "daemonsets", "ds", "ingress", "configmaps", "secrets"],
    reason: "a watcher holds only Services, EndpointSlices and Nodes",
    instead: "`kpng get --help` lists what can be shown; use kubectl for the rest",
  },
  {
    words: ["events"],
    reason: "a watcher holds no Events",
    instead: "`kpng get changes --watch` follows the changes of Services, endpoints and nodes",
  },
  {
    words: ["proxy", "dashboard"],
    reason: "a watcher serves its status page itself",
    instead: "open the watcher's address in a browser on its machine (docs/guides/status-page.md)",
  },
  {
    words: ["-f", "--filename"],
    reason: "files are a source, named before the command",
    instead: "`kpng file -i FILE get services`",
  },
  {
    words: ["--server", "-s", "--token"],
    reason: "this command asks a watcher, not the API server",
    instead: "`--kubeconfig FILE` or `--context NAME` for a cluster, `--api ADDRESS` with `--token-file` for a watcher",
  },
  {
    words: ["--show-labels", "-L", "--field-selector", "--template"],
    reason: "tables have fixed columns",
    instead: "`-o wide`, or `-o json` and jq; `-l` selects by labels",
  },
  {
    words: ["--hostname-override"],
    reason: "the node is named by --node-name",
    instead: "`--node-name NODE`; docs/reference/kube-proxy-flags.md has every option",
  },
  {
    words: [...["--proxy-mode", "--cluster-cidr", "--config", "--cleanup", "--masquerade-all"], "--nodeport-addresses"],
    reason: "each service proxy is a program of its own, with kube-proxy's options",
    instead: "`kpng-nft`, `kpng-iptables` or `kpng-ipvs`; docs/reference/kube-proxy-flags.md has every option",
  },
];

/**
 * Makes a command and its subcommands say what to type instead when a user types a command or option of kubectl or
 * kube-proxy that `kpng` lacks. The parser itself would suggest words with a similar spelling: "release" for `kpng
 * delete`.
 */
export function refuseHabits(command: Command): Command {
  command.configureOutput({ outputError: (text, write) => write(describeRefusal(text) ?? text) });
  for (const child of command.commands) refuseHabits(child);
  return command;
}

/** Returns the message for a parser error about a word in {@link refusals}; undefined for any other error. Pure. */
function describeRefusal(error: string): string | undefined {
  const word = /unknown (?:command|option) '([^'=]+)/.exec(error)?.[1] ?? "";
  const refusal = refusals.find(({ words }) => words.includes(word));
  if (refusal === undefined) return undefined;
  return `Error: kpng has no "${word}": ${refusal.reason}\nHint: ${refusal.instead.replaceAll("`", "")}\n`;
}
