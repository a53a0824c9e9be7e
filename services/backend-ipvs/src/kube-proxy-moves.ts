import { readLocalAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import type { ProxyAlternative } from "@kpng/backend-kit/proxy/proxy-spec.ts";
import { lockRules } from "@kpng/backend-kit/proxy/rules-lock.ts";
import { handOver } from "./commit/hand-over.ts";
import { removeKubeProxy } from "./commit/remove-kube-proxy.ts";
import { readIpvsSettings } from "./ipvs-settings.ts";
import { RunTool } from "./read/run-tool.ts";
import { objectNames } from "./render/object-names.ts";

/** kube-proxy serves only Services without a proxy name, so only this instance takes its place. */
const names = objectNames("");

/**
 * Steps of a move from and to kube-proxy, which are runs of their own: docs/guides/migrate-from-kube-proxy.md has their
 * order. `ipvsBackend` passes them to `proxyBackend`. Separate from it, because serving does not need them.
 */
export const kubeProxyMoves: readonly ProxyAlternative[] = [
  {
    name: "cleanupKubeProxy",
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
        const { toolMs, excludedCIDRs } = readIpvsSettings(options);
        const runTool = new RunTool(toolMs);
        return removeKubeProxy({ names, runTool, log, localAddresses: readLocalAddresses(), excludedCIDRs });
      },
    }),
  },
  {
    name: "handOverToKubeProxy",
    options: [
      {
        flags: "--hand-over-to-kube-proxy",
        description:
          "before kube-proxy starts in ipvs mode: give it the interface and virtual servers of Services, and exit",
      },
    ],
    makeTask: (options, _settings, context) => ({
      name: "backend/ipvs/hand-over",
      run: async (signal) => {
        // A kpng-ipvs that still runs would take the addresses back.
        await using lock = await lockRules({ ...context, name: `ipvs ${names.prefix}` }, signal);
        const runTool = new RunTool(readIpvsSettings(options).toolMs);
        if (lock !== undefined) await handOver({ names, runTool, log: context.log });
      },
    }),
  },
];
