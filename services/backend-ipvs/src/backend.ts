import { nodeFamilies, readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ProxyAlternative, ProxyHost, ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import { type Family, parseCidr } from "@kpng/model/address.ts";
import { type OptionSpec, parseDurationMs, parseWholeNumber, repeatable } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { InvalidArgumentError } from "commander";
import { IpvsRuleSet, observeRefused } from "./commit/ipvs-rule-set.ts";
import { checkKernel, type KernelSettings, setKernel } from "./commit/kernel-support.ts";
import { removeKubeProxy } from "./commit/kube-proxy.ts";
import { removeObjects } from "./commit/remove-objects.ts";
import { RunTool } from "./read/run-tool.ts";
import { objectNames } from "./render/kernel-objects.ts";

/** Options that only this backend has. Options that also exist in kube-proxy have the same names there. */
const ipvsOptions: readonly OptionSpec[] = [
  {
    flags: "--ipvs-scheduler <name>",
    description: "scheduler of virtual servers: rr, wrr, lc, wlc, sh, mh or another one of the kernel",
    default: "rr",
    parse: schedulerName,
  },
  repeatable("--ipvs-exclude-cidrs <cidrs>", "addresses at which virtual servers of other programs are not taken over"),
  {
    flags: "--iptables-masquerade-bit <bit>",
    isExpert: true,
    description: "bit of the packet mark that requests masquerade, 0 to 23; may be kube-proxy's",
    default: 14,
    parse: parseWholeNumber("--iptables-masquerade-bit", 0, 23),
  },
  {
    flags: "--ipvs-strict-arp",
    description: "answer ARP only on the interface that has the address (arp_ignore=1, arp_announce=2)",
  },
  {
    flags: "--ipvs-tcp-timeout <duration>",
    isExpert: true,
    description: "timeout of idle TCP connections; 0 keeps the kernel's",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--ipvs-tcpfin-timeout <duration>",
    isExpert: true,
    description: "timeout of TCP connections after a FIN; 0 keeps the kernel's",
    default: 0,
    parse: parseDurationMs,
  },
  {
    flags: "--ipvs-udp-timeout <duration>",
    isExpert: true,
    description: "timeout of UDP flows; 0 keeps the kernel's",
    default: 0,
    parse: parseDurationMs,
  },
];

interface IpvsSettings extends KernelSettings {
  readonly scheduler: string;
  /** In canonical form. */
  readonly excludedCIDRs: readonly string[];
  readonly masqueradeBit: number;
}

/** Returns the settings from parsed options. Errors: BAD_OPTION. */
export function readIpvsSettings(options: ParsedOptions): IpvsSettings {
  return {
    scheduler: String(options.ipvsScheduler ?? "rr"),
    excludedCIDRs: parseExcludedCIDRs(options.ipvsExcludeCidrs),
    masqueradeBit: Number(options.iptablesMasqueradeBit ?? 14),
    isStrictArp: options.ipvsStrictArp === true,
    timeouts: {
      tcpMs: Number(options.ipvsTcpTimeout ?? 0),
      tcpFinMs: Number(options.ipvsTcpfinTimeout ?? 0),
      udpMs: Number(options.ipvsUdpTimeout ?? 0),
    },
  };
}

function parseExcludedCIDRs(value: unknown): readonly string[] {
  return (Array.isArray(value) ? value.map(String) : []).map((text) => {
    const parsed = parseCidr(text);
    if (parsed !== undefined) return parsed.cidr;
    throw new ProcessError("BAD_OPTION", `--ipvs-exclude-cidrs "${text}" is not a CIDR: write 10.0.0.0/8 or fd00::/8`);
  });
}

function schedulerName(text: string): string {
  if (/^[a-z][a-z0-9]{1,14}$/.test(text)) return text;
  throw new InvalidArgumentError(`"${text}" is not the name of a scheduler: write rr, wrr, lc, wlc, sh or mh`);
}

/** kube-proxy serves only Services without a proxy name, so only the instance without a proxy name replaces it. */
const defaultNames = objectNames("");

/**
 * A step of the migration from kube-proxy that is run separately. docs/guides/migrate-from-kube-proxy.md gives the
 * order.
 */
const kubeProxyMoves: readonly ProxyAlternative[] = [
  {
    optionKey: "cleanupKubeProxy",
    options: [
      {
        flags: "--cleanup-kube-proxy",
        description:
          "remove what kube-proxy in ipvs or iptables mode has left, except virtual servers that kpng-ipvs has taken over, and exit",
      },
    ],
    makeTask: (options, _settings, { log }) => ({
      name: "backend/ipvs/cleanup-kube-proxy",
      run: () => {
        const { excludedCIDRs } = readIpvsSettings(options);
        const runTool = new RunTool();
        const localAddresses = readLocalAddresses();
        return removeKubeProxy({ names: defaultNames, runTool, log, localAddresses, excludedCIDRs });
      },
    }),
  },
];

/** The backend that serves Services with IPVS, the load balancer in the kernel. */
export const ipvsBackend = proxyBackend({
  name: "ipvs",
  proxyMode: "ipvs",
  healthPort: 10_274,
  description: "serve Services with IPVS on this node, in the place of kube-proxy",
  options: ipvsOptions,
  alternatives: kubeProxyMoves,
  examples: `
Examples:
  # as kube-proxy would be started
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16

  # least connections instead of round robin
  COMMAND --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16 --ipvs-scheduler lc

  # print what the tools would be given, without changing anything
  COMMAND --node-name n1 --once --dry-run

  # has another program changed our virtual servers? exit code 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # remove virtual servers, addresses, ipsets and rules
  COMMAND --cleanup

  # remove what kube-proxy has left, once kpng-ipvs serves in its place
  COMMAND --cleanup-kube-proxy

Everything stays when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeProxy,
});

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy {
  const settings = readIpvsSettings(options);
  const names = objectNames(serviceProxyName);
  const runTool = new RunTool();
  const openOne = (family: Family, { destination, requests, localAddresses, log }: ProxyHost): IpvsRuleSet => {
    const { scheduler, excludedCIDRs, masqueradeBit } = settings;
    const instance = { family, names, runTool, scheduler, excludedCIDRs, masqueradeBit };
    const common = { ...instance, requests, localAddresses, log };
    if (destination.kind === "kernel") return new IpvsRuleSet(common);
    return new IpvsRuleSet({ ...common, print: destination.kind === "print" ? destination.print : () => undefined });
  };
  return {
    // IPVS cannot forward packets from 127.0.0.0/8.
    wantsLoopbackNodePorts: false,
    openRuleSets: async (host) => {
      const isKernel = host.destination.kind === "kernel";
      await checkKernel(runTool);
      if (isKernel) await setKernel(settings, { ...host, runTool });
      const ruleSets = nodeFamilies().map((family) => openOne(family, host));
      observeRefused(host.metrics, ruleSets);
      return { ruleSets };
    },
    cleanUp: ({ log }) => removeObjects({ names, runTool, log }),
  };
}
