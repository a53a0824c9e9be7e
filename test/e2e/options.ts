import { parseArgs } from "node:util";
import type { Families } from "./cluster/network.ts";
import { type Backend, backends } from "./proxy/images.ts";
import type { Selection } from "./suite/report.ts";
import { selectTests } from "./suite/selection.ts";

/** Service proxies that the tests run with. kube-proxy is there for comparison. */
export const proxyNames = [...backends, "kube-proxy", "kube-proxy-nftables", "kube-proxy-ipvs"] as const;
export type ProxyName = (typeof proxyNames)[number];

export interface Options {
  readonly proxies: readonly ProxyName[];
  readonly selection: Selection;
  readonly families: Families;
  readonly nodeCount: number;
  readonly keep: boolean;
  /** Folder of the release that is installed; undefined for the sources of this repository. */
  readonly release: string | undefined;
  /** Whether the release is installed by its Helm chart, otherwise by its manifests. */
  readonly helm: boolean;
  /** Folder of the release that is installed first, for `upgrade`. */
  readonly upgradeFrom: string | undefined;
  /** What runs instead of Kubernetes' tests. */
  readonly instead: "move" | "recovery" | "upgrade" | undefined;
}

const familiesByName: Readonly<Record<string, Families>> = {
  ipv4: ["ipv4"],
  ipv6: ["ipv6"],
  dual: ["ipv4", "ipv6"],
};

export const help = `Usage: npm run e2e -- --backend NAME[,NAME…] [OPTION…]

Runs Kubernetes' own tests of Services on a cluster that it starts on this machine. kpng is installed from the manifests
and images of this repository. Prints a table in Markdown. Needs root on Debian, and Go 1.26; eleven minutes for each
backend, and a quarter of an hour more the first time.

  --backend NAME   ${proxyNames.join(", ")};
                   those with ipvs need IPVS in the kernel of this machine, or KPNG_GUEST_KERNEL, the kernel of a guest
                   for the nodes; ebpf needs cgroup version 2
  --focus REGEXP   only the tests whose full name matches
  --quick          only a few tests, as \`npm run test:all\` does
  --recovery       instead of these tests: take away watchers, API server and rules, and check that Services work
  --move           instead of these tests, with ipvs: move all nodes from kube-proxy's ipvs mode to kpng-ipvs and back,
                   with the commands of the guide, and check that all connections succeed
  --release FOLDER install the files of a release, made by \`npm run release -- VERSION FOLDER --images\`
  --helm           with --release: install its Helm chart instead of its manifests
  --upgrade-from FOLDER
                   with --release, instead of these tests: install this release, upgrade it to the other and roll back, and
                   check that all connections succeed, 50 each second
  --family NAME    addresses of the cluster: ipv4, ipv6 or dual (default ipv4)
  --nodes NUMBER   nodes, 2 to 9 (default 3)
  --keep           keep the logs of the cluster, and print their folder
  --help           print this
`;

/** Returns the options; undefined if only help is wanted. Errors: an unknown option or value, as text for people. */
export function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      backend: { type: "string", multiple: true, default: [] },
      focus: { type: "string" },
      quick: { type: "boolean", default: false },
      recovery: { type: "boolean", default: false },
      move: { type: "boolean", default: false },
      release: { type: "string" },
      helm: { type: "boolean", default: false },
      "upgrade-from": { type: "string" },
      family: { type: "string", default: "ipv4" },
      nodes: { type: "string", default: "3" },
      keep: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return undefined;
  const proxies = values.backend.flatMap((text) => text.split(",")).map(parseProxyName);
  if (proxies.length === 0) throw new Error(`--backend is needed: ${proxyNames.join(", ")}`);
  if (values.recovery && proxies.some((name) => backendOf(name) === undefined))
    throw new Error("--recovery is for the backends of kpng");
  const { release, helm, "upgrade-from": upgradeFrom } = values;
  if (release === undefined && (helm || upgradeFrom !== undefined))
    throw new Error("--helm and --upgrade-from need --release");
  if (release !== undefined && (values.move || proxies.some((name) => backendOf(name) === undefined)))
    throw new Error("--release is for the backends of kpng, without --move");
  if (values.move && proxies.some((name) => name !== "ipvs")) throw new Error("--move is for ipvs");
  const families = familiesByName[values.family];
  if (families === undefined) throw new Error(`--family ${values.family}: expected ipv4, ipv6 or dual`);
  const nodeCount = Number(values.nodes);
  if (!(Number.isInteger(nodeCount) && nodeCount >= 2 && nodeCount <= 9)) {
    throw new Error(`--nodes ${values.nodes}: expected a number from 2 to 9`);
  }
  return {
    proxies,
    selection: selectTests(values.focus, values.quick ? "quick" : "all"),
    families,
    nodeCount,
    keep: values.keep,
    release,
    helm,
    upgradeFrom,
    instead: values.move ? "move" : values.recovery ? "recovery" : upgradeFrom !== undefined ? "upgrade" : undefined,
  };
}

/** Returns the backend of kpng that a proxy is; undefined for kube-proxy. */
function backendOf(proxy: ProxyName): Backend | undefined {
  return backends.find((name) => name === proxy);
}

function parseProxyName(text: string): ProxyName {
  const name = proxyNames.find((each) => each === text);
  if (name === undefined) throw new Error(`--backend ${text}: expected ${proxyNames.join(", ")}`);
  return name;
}
