import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { proxyBackend } from "@kpng/backend-kit/proxy/proxy-backend.ts";
import type { ProxyHost } from "@kpng/backend-kit/proxy/proxy-host.ts";
import type { ServiceProxy } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import type { ParsedOptions } from "@kpng/backend-kit/types/parsed-options.ts";
import type { Family } from "@kpng/model/address.ts";
import { checkKernel } from "./commit/check-kernel.ts";
import type { IpvsChange } from "./commit/ipvs-change.ts";
import { IpvsRuleSet } from "./commit/ipvs-rule-set.ts";
import { observeRefused } from "./commit/observe-refused.ts";
import { setKernel } from "./commit/prepare-kernel.ts";
import { removeObjects } from "./commit/remove-objects.ts";
import { Schedulers } from "./commit/schedulers.ts";
import { ipvsOptions, readIpvsSettings } from "./ipvs-settings.ts";
import { kubeProxyMoves } from "./kube-proxy-moves.ts";
import { RunTool } from "./read/run-tool.ts";
import { BackendIpvsError } from "./render/ipvs-error.ts";
import { objectNames } from "./render/object-names.ts";

/**
 * The backend that serves Services with IPVS, the load balancer in the kernel. The program kpng-ipvs (`main.ts`) runs
 * it, and package cli runs it as `kpng SOURCE to-ipvs`.
 *
 * Separate from `main.ts`, because cli loads it too. It only declares the backend and connects parts: `IpvsRuleSet`
 * installs the objects, and `ipvs-settings.ts` has the options.
 */
export const ipvsBackend = proxyBackend<IpvsChange>({
  name: "ipvs",
  proxyMode: "ipvs",
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

  # has another program changed our virtual servers? exit status 0: no, 1: yes, 2: not known
  COMMAND --node-name n1 --diff

  # remove virtual servers, addresses, ipsets and rules
  COMMAND --cleanup

  # remove what kube-proxy has left, once kpng-ipvs serves in its place
  COMMAND --cleanup-kube-proxy

Everything stays when the program ends: traffic goes on, and the next start changes only what differs.
`,
  makeProxy,
});

function makeProxy(options: ParsedOptions, serviceProxyName: string): ServiceProxy<IpvsChange> {
  const settings = readIpvsSettings(options);
  const names = objectNames(serviceProxyName);
  const runTool = new RunTool(settings.toolMs);
  const openOne = (
    family: Family,
    schedulers: Schedulers,
    { destination, requests, localAddresses, log }: ProxyHost,
  ): IpvsRuleSet => {
    const { excludedCIDRs, masqueradeBit, drainMs } = settings;
    const own = { family, names, runTool, schedulers, excludedCIDRs, masqueradeBit, drainMs };
    const common = { ...own, requests, localAddresses, log };
    if (destination.kind === "kernel") return new IpvsRuleSet(common);
    return new IpvsRuleSet({ ...common, print: destination.kind === "print" ? destination.print : () => undefined });
  };
  return {
    rulesName: names.prefix,
    // IPVS cannot forward what comes from 127.0.0.0/8.
    wantsLoopbackNodePorts: false,
    openRuleSets: async (host) => {
      const isKernel = host.destination.kind === "kernel";
      await checkKernel({ names, runTool });
      const { scheduler: standard } = settings;
      const schedulers = new Schedulers({ runTool, standard, log: host.log, mayTry: isKernel });
      const fault = await schedulers.faultOf(standard);
      if (fault !== undefined) {
        const module = `ip_vs_${standard}`;
        throw new BackendIpvsError("IPVS_UNAVAILABLE", `the kernel has no scheduler ${standard} (${module}): ${fault}`);
      }
      if (isKernel) await setKernel(settings, { ...host, runTool });
      const ruleSets = nodeFamilies().map((family) => openOne(family, schedulers, host));
      observeRefused(host.metrics, ruleSets);
      return { ruleSets };
    },
    cleanUp: ({ log }) => removeObjects({ names, runTool, log }),
  };
}
