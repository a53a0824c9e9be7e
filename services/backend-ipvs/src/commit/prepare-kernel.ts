import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { RunTool } from "../read/run-tool.ts";

/** Settings of IPVS that hold for the whole node. */
export interface KernelSettings {
  readonly isStrictArp: boolean;
  /** In milliseconds; 0 keeps the kernel's value. */
  readonly timeouts: { readonly tcpMs: number; readonly tcpFinMs: number; readonly udpMs: number };
}

/**
 * Sets the sysctls that IPVS needs for Services, and timeouts if they are configured. A sysctl that cannot be set is
 * logged, because it may already have its value on the host. `backend.ts` calls it before the first sync.
 *
 * Errors: COMMIT_REJECTED, for timeouts.
 */
export async function setKernel(
  settings: KernelSettings,
  { sysctls, runTool, log }: { readonly sysctls: Sysctls; readonly runTool: RunTool; readonly log: Log },
): Promise<void> {
  for (const [name, value] of wantedSysctls(settings)) {
    try {
      const before = await sysctls.ensure(name, value);
      if (before !== undefined) log.info("sysctl set", { name, value, before });
    } catch (error) {
      log.error("sysctl not set: some packets may get no answer", { name, value, reason: reasonOf(error) });
    }
  }
  const seconds = timeoutSeconds(settings.timeouts);
  if (seconds.some((value) => value !== "0")) await runTool.write(["ipvsadm", "--set", ...seconds], []);
}

/** Returns the arguments of `ipvsadm --set`, in whole seconds. 0 keeps a timeout, so shorter ones become 1. */
export function timeoutSeconds({ tcpMs, tcpFinMs, udpMs }: KernelSettings["timeouts"]): readonly string[] {
  return [tcpMs, tcpFinMs, udpMs].map((ms) => String(Math.ceil(ms / 1_000)));
}

/** Returns the sysctls and their values. *Source:* kube-proxy `ipvs/proxier.go`, NewProxier. */
export function wantedSysctls({
  isStrictArp,
}: Pick<KernelSettings, "isStrictArp">): readonly (readonly [string, number])[] {
  return [
    // Without it, masquerade does not see the connections of IPVS.
    ["net/ipv4/vs/conntrack", 1],
    // Connections to a deleted endpoint end at once, and datagrams go to another one.
    ["net/ipv4/vs/expire_nodest_conn", 1],
    // Clients with affinity leave an endpoint that drains.
    ["net/ipv4/vs/expire_quiescent_template", 1],
    ["net/ipv4/ip_forward", 1],
    ...(isStrictArp
      ? ([
          ["net/ipv4/conf/all/arp_ignore", 1],
          ["net/ipv4/conf/all/arp_announce", 2],
        ] as const)
      : []),
  ];
}
