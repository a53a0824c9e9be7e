import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/kernel-objects.ts";

/**
 * Checks that the tools can be started, and that the kernel has IPVS and ipsets; it changes nothing. The kernel loads a
 * module when a tool first needs it, using the host's modprobe, so a container needs neither modprobe nor
 * CAP_SYS_MODULE. If anything else is missing, e.g. an ipset type or an iptables match, the first sync fails with the
 * tool's own message before it changes any virtual server.
 *
 * Errors: IPVS_UNAVAILABLE, TOOL_MISSING.
 */
export async function checkKernel(runTool: RunTool): Promise<void> {
  await runTool.read(["ip", "-o", "link", "show"]);
  const missing: string[] = [];
  for (const [part, command] of [
    ["IPVS (module ip_vs)", ["ipvsadm", "-S", "-n"]],
    ["ipsets (module ip_set)", ["ipset", "-t", "save"]],
  ] as const) {
    try {
      await runTool.read(command);
    } catch (error) {
      if (!(error instanceof BackendIpvsError) || error.code === "TOOL_MISSING") throw error;
      missing.push(`${part}: ${error.message.replace(/^\[\w+\] /, "")}`);
    }
  }
  if (missing.length > 0) {
    throw new BackendIpvsError("IPVS_UNAVAILABLE", `the node's kernel gives no access to ${missing.join("; ")}`);
  }
}

/** IPVS settings that apply to the whole node. */
export interface KernelSettings {
  readonly isStrictArp: boolean;
  /** In milliseconds; 0 keeps the kernel's value. */
  readonly timeouts: { readonly tcpMs: number; readonly tcpFinMs: number; readonly udpMs: number };
}

/**
 * Sets the sysctls that IPVS needs for Services, and timeouts if they are configured. A sysctl that cannot be set is
 * only logged: if it could not be read either, it may have the desired value.
 *
 * Errors: COMMIT_REJECTED if a timeout cannot be set.
 */
export async function setKernel(
  settings: KernelSettings,
  { sysctls, runTool, log }: { readonly sysctls: Sysctls; readonly runTool: RunTool; readonly log: Log },
): Promise<void> {
  for (const [name, value] of desiredSysctls(settings)) {
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

/**
 * Returns the arguments of `ipvsadm --set`, in whole seconds. 0 means that a timeout is not changed, so timeouts below
 * one second become 1.
 */
export function timeoutSeconds({ tcpMs, tcpFinMs, udpMs }: KernelSettings["timeouts"]): readonly string[] {
  return [tcpMs, tcpFinMs, udpMs].map((ms) => String(Math.ceil(ms / 1_000)));
}

/** Returns the sysctls and their values. *Source:* kube-proxy `ipvs/proxier.go`, NewProxier. */
export function desiredSysctls({
  isStrictArp,
}: Pick<KernelSettings, "isStrictArp">): readonly (readonly [string, number])[] {
  return [
    // Without this sysctl, IPVS connections are not masqueraded.
    ["net/ipv4/vs/conntrack", 1],
    // Connections to a deleted endpoint end immediately, and datagrams go to another endpoint.
    ["net/ipv4/vs/expire_nodest_conn", 1],
    // Clients with affinity leave a draining endpoint.
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
