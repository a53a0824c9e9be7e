/**
 * A habit of another tool that `kpng` refuses: what people type, why `kpng` has no such thing, and what it has instead.
 *
 * `refuseHabits` prints it, and `docs/reference/habits.md` has a row for each. Separate from `refuseHabits`, which
 * finds the habit in a command line: this file is only the table.
 */
export interface RefusedHabit {
  readonly tool: "kubectl" | "istioctl" | "hubble" | "cilium";
  /**
   * Spellings of the habit.
   *
   * *Shape:* a command (`delete`), a group of ours and an unknown word (`get pods`), an option (`--show-labels`), or
   * the short form of an option of ours and the beginning of its value (`-o go-template`).
   */
  readonly words: readonly string[];
  /** Clause that completes 'kpng has no "delete": …'. */
  readonly reason: string;
  /** Commands and options that do the job here. *Shape:* Markdown, with them in backticks. */
  readonly instead: string;
}

/** In the order of `docs/reference/habits.md`. */
export const refusedHabits: readonly RefusedHabit[] = [
  {
    tool: "kubectl",
    words: ["get pods", "get pod", "get po", "describe pods", "describe pod", "describe po"],
    reason: "a watcher knows pods only as endpoints of Services",
    instead: "`kpng get endpoints`, `kpng describe endpoint POD`",
  },
  {
    tool: "kubectl",
    words: [
      ...["get all", "get namespaces", "get ns", "get deployments", "get deploy", "get daemonsets", "get ds"],
      ...["get ingresses", "get ingress", "get networkpolicies", "get netpol"],
    ],
    reason: "a watcher holds only Services, EndpointSlices and Nodes",
    instead: "`kpng get services`, `kpng get endpoints` or `kpng get nodes`; use kubectl for the rest",
  },
  {
    tool: "kubectl",
    words: ["events", "get events"],
    reason: "a watcher holds no Events",
    instead: "`kpng get changes --watch` follows the changes of Services, endpoints and nodes",
  },
  {
    tool: "kubectl",
    words: [
      ...["apply", "create", "delete", "edit", "patch", "replace", "scale", "set", "label", "annotate", "expose"],
      ...["rollout", "cordon", "drain", "taint"],
    ],
    reason: "kpng never writes to the API server",
    instead: "use kubectl; then `kpng trace` shows when the change reached the nodes",
  },
  {
    tool: "kubectl",
    words: ["logs"],
    reason: "kpng does not read the logs of pods",
    instead: "`kubectl logs -n kube-system ds/kpng-nft`; `kpng bug-report --log FILE` adds a log to a report",
  },
  {
    tool: "kubectl",
    words: ["exec", "attach", "cp", "debug", "port-forward"],
    reason: "kpng opens no connection to pods",
    instead: "use kubectl; `kpng explain` says where a packet to a Service goes",
  },
  {
    tool: "kubectl",
    words: ["top nodes", "top node", "top no", "top pods", "top pod", "top po"],
    reason: "kpng does not measure CPU and memory",
    instead: "`kpng top` for nodes that are behind, `kpng top services` for the traffic of Services",
  },
  {
    tool: "kubectl",
    words: ["--show-labels", "--label-columns", "-L"],
    reason: "tables have no columns for labels",
    instead: "`-o custom-columns=NAME:.name,APP:.labels.app`, or `-o yaml`; `-l` selects by labels",
  },
  {
    tool: "kubectl",
    words: ["-o go-template", "-o go-template-file", "-o jsonpath-file", "-o custom-columns-file", "--template"],
    reason: "templates are JSONPath, given on the command line",
    instead: "`-o jsonpath=TEMPLATE`, or `-o json` and jq",
  },
  {
    tool: "kubectl",
    words: ["config", "--context", "--cluster", "--user"],
    reason: "kpng takes only the current context of a kubeconfig",
    instead: "`kpng kube --kubeconfig FILE`, with a file for each context",
  },
  {
    tool: "kubectl",
    words: ["-f", "--filename"],
    reason: "files are a source, named before the command",
    instead: "`kpng file -i FILE get services`",
  },
  {
    tool: "istioctl",
    words: ["proxy-status", "ps"],
    reason: "there is one service proxy on each node, and no sidecar",
    instead: "`kpng get nodes`, `kpng status`",
  },
  {
    tool: "istioctl",
    words: ["proxy-config", "pc"],
    reason: "there is one service proxy on each node, and no sidecar",
    instead: "`kpng get view NODE`, or `kpng get rules` on the node",
  },
  {
    tool: "hubble",
    words: ["observe", "monitor"],
    reason: "kpng sees rules, not packets",
    instead: "`kpng get changes --watch` follows changes, `kpng explain` says where a packet goes",
  },
  {
    tool: "cilium",
    words: ["sysdump"],
    reason: "it has another name here",
    instead: "`kpng bug-report`, with `--redact` to replace names and addresses",
  },
  {
    tool: "cilium",
    words: ["service", "services", "svc"],
    reason: "lists begin with get",
    instead: "`kpng get services`, or `kpng get rules --service NAMESPACE/NAME` on a node",
  },
  {
    tool: "cilium",
    words: ["endpoint", "endpoints", "ep"],
    reason: "lists begin with get",
    instead: "`kpng get endpoints`",
  },
  { tool: "cilium", words: ["node", "nodes"], reason: "lists begin with get", instead: "`kpng get nodes`" },
  {
    tool: "cilium",
    words: ["bpf", "lb", "map"],
    reason: "rules are shown alike for all service proxies",
    instead: "`kpng get rules --service NAMESPACE/NAME` on the node",
  },
  {
    tool: "cilium",
    words: ["connectivity"],
    reason: "kpng sends no packets into a cluster",
    instead: "`kpng analyze` and `kpng explain`; in a clone, `npm run e2e` runs Kubernetes' own tests",
  },
  {
    tool: "cilium",
    words: ["install", "upgrade", "uninstall"],
    reason: "kpng is installed by manifests",
    instead: "use kubectl with the manifests in `deploy/kubernetes`; docs/install.md has the steps",
  },
];
