/**
 * A habit of another tool that `kpng` refuses: what people type, why `kpng` has no such thing, and what it has instead.
 *
 * `refuseHabits` prints it, and `docs/reference/habits.md` has a row for each. Separate from `refuseHabits`, which
 * finds the habit in a command line: this file is only the table.
 */
export interface RefusedHabit {
  readonly tool: "kubectl" | "kube-proxy" | "istioctl" | "hubble" | "cilium";
  /**
   * Spellings of the habit.
   *
   * *Shape:* a command (`delete`), a group of ours and an unknown word (`get pods`), an option (`--show-labels`), or
   * the short form of an option of ours and the beginning of its value (`-o go-template`). `KIND,KIND` stands for
   * several kinds, and `WORD` for any word after a command that takes none.
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
      ...["get ingresses", "get ingress", "get ing", "get networkpolicies", "get netpol", "get configmaps"],
      ...["get configmap", "get cm", "get secrets", "get secret", "get serviceaccounts", "get sa", "get statefulsets"],
      ...["get sts", "get replicasets", "get rs", "get jobs", "get cronjobs", "get crd", "get leases", "get hpa"],
      ...["get gateways", "get httproutes", "get pv", "get pvc", "get deployment", "get daemonset"],
    ],
    reason: "a watcher holds only Services, EndpointSlices and Nodes",
    instead: "`kpng get services`, `kpng get endpoints` or `kpng get nodes`; use kubectl for the rest",
  },
  {
    tool: "kubectl",
    words: ["get KIND,KIND", "describe KIND,KIND"],
    reason: "a command shows one kind, as the columns of each differ",
    instead:
      "one command for each: `kpng get services`, `kpng get endpoints`; names of one kind are separated by spaces",
  },
  {
    tool: "kubectl",
    words: ["api-resources", "api-versions"],
    reason: "a watcher holds only Services, EndpointSlices and Nodes",
    instead: "`kpng get --help` lists what can be shown",
  },
  {
    tool: "kubectl",
    words: ["kubectl", "istioctl", "hubble", "cilium"],
    reason: "it does not run other tools",
    instead: "leave the name of the other tool out: `kpng get services`",
  },
  {
    tool: "kubectl",
    words: ["options"],
    reason: "each command has its own options",
    instead: "`kpng get services --help`; docs/reference/options.md has all of them",
  },
  {
    tool: "kubectl",
    words: ["plugin", "krew"],
    reason: "only backends can be added",
    instead: "a program `kpng-NAME` on the PATH is run by `kpng local to-NAME`",
  },
  {
    tool: "kubectl",
    words: ["cluster-info"],
    reason: "kpng asks a watcher, not the cluster",
    instead: "`kpng status`; `kpng bug-report` writes what `dump` would",
  },
  {
    tool: "kubectl",
    words: ["wait"],
    reason: "a watcher holds no conditions",
    instead: "`kpng get nodes --not-applied REVISION` lists the nodes that lack a change",
  },
  {
    tool: "kubectl",
    words: ["auth", "whoami"],
    reason: "rights are those of the watcher's clients",
    instead: "a request without a right says so; docs/guides/security.md lists the rights",
  },
  {
    tool: "kubectl",
    words: ["kustomize"],
    reason: "kpng reads manifests as they are",
    instead: "`kubectl kustomize FOLDER | kpng file -i - get services`",
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
      ...["rollout", "cordon", "uncordon", "drain", "taint", "run", "autoscale"],
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
    instead: "`kpng top` for nodes that are behind",
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
    words: [
      ...["--kubeconfig", "--server", "-s", "--token", "--as", "--certificate-authority", "--client-certificate"],
      ...["--client-key", "--insecure-skip-tls-verify"],
    ],
    reason: "this command asks a watcher, not the API server",
    instead:
      "`--api ADDRESS` with `--tls-ca`, `--tls-crt`, `--tls-key` or `--token-file`; " +
      "`kpng kube --kubeconfig FILE get services` asks the API server",
  },
  {
    tool: "kubectl",
    words: ["-A", "--all-namespaces", "-l", "--selector"],
    reason: "only lists select",
    instead: "`kpng get services -l app=web -o name`, then `kpng describe service NAMESPACE/NAME`",
  },
  {
    tool: "kubectl",
    words: ["--watch-only", "--output-watch-events"],
    reason: "a watch begins with the list, and each row names its event",
    instead: "`--watch`",
  },
  {
    tool: "kubectl",
    words: ["--ignore-not-found"],
    reason: "a missing name is an error",
    instead: "`--field-selector name=NAME` may match nothing",
  },
  {
    tool: "kubectl",
    words: ["--show-kind"],
    reason: "a list has one kind",
    instead: "`-o name` prints `service/NAMESPACE/NAME`",
  },
  {
    tool: "kubectl",
    words: ["--chunk-size", "--server-print", "--show-managed-fields", "--raw", "--short"],
    reason: "it would change nothing here",
    instead: "leave it out",
  },
  {
    tool: "kubectl",
    words: ["--request-timeout"],
    reason: "a request waits until it is answered or interrupted",
    instead: "`timeout 5s kpng get services`",
  },
  {
    tool: "kubectl",
    words: ["-v", "--v"],
    reason: "requests are not logged",
    instead: "`--log-level debug` of the watcher or the backend",
  },
  {
    tool: "kubectl",
    words: ["-f", "--filename"],
    reason: "files are a source, named before the command",
    instead: "`kpng file -i FILE get services`",
  },
  {
    tool: "kube-proxy",
    words: [
      ...["--cleanup", "--proxy-mode", "--write-config-to", "--cluster-cidr", "--hostname-override"],
      ...["--masquerade-all", "--nodeport-addresses", "--config"],
    ],
    reason: "each service proxy is a program of its own, with kube-proxy's options",
    instead: "`kpng-nft`, `kpng-iptables` or `kpng-ipvs`; docs/reference/kube-proxy-flags.md has every option",
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
    tool: "istioctl",
    words: ["analyze WORD"],
    reason: "a file is a source, named before the command",
    instead: "`kpng file -i FILE analyze`",
  },
  {
    tool: "istioctl",
    words: ["experimental", "x", "admin", "tag", "waypoint", "ztunnel-config", "zc", "authz"],
    reason: "there is no mesh",
    instead: "`kpng analyze`, `kpng get view NODE`, `kpng explain`",
  },
  {
    tool: "hubble",
    words: ["list"],
    reason: "lists begin with get",
    instead: "`kpng get nodes`, `kpng get services`",
  },
  {
    tool: "hubble",
    words: ["observe", "monitor"],
    reason: "kpng sees rules, not packets",
    instead: "`kpng get changes --watch` follows changes, `kpng explain` says where a packet goes",
  },
  {
    tool: "cilium",
    words: ["sysdump", "debuginfo"],
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
    words: ["metrics"],
    reason: "each process serves its metrics by HTTP",
    instead: "`curl 127.0.0.1:12091/metrics` for a watcher; docs/guides/monitoring.md names the other ports",
  },
  {
    tool: "cilium",
    words: ["policy", "identity", "fqdn", "encrypt", "clustermesh"],
    reason: "kpng is no network plugin, and has no network policy",
    instead: "use the network plugin's own tool",
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
