import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";

/** Settings of IPVS that hold for the whole node. */
export interface KernelSettings {
  readonly isStrictArp: boolean;
  /** In milliseconds; 0 keeps the kernel's value. */
  readonly timeouts: { readonly tcpMs: number; readonly tcpFinMs: number; readonly udpMs: number };
}

/** Parts of the kernel that are needed, and a command that fails without them. */
const neededParts = [
  { part: "IPVS (module ip_vs)", command: ["ipvsadm", "-S", "-n"] },
  { part: "ipsets (module ip_set)", command: ["ipset", "-t", "save"] },
  { part: "the table mangle of iptables", command: ["iptables-save", "-t", "mangle"] },
] as const;

/**
 * Checks that the tools are installed and that the kernel has what they ask for; it changes no rules. `backend.ts`
 * calls it before it opens rule sets. Separate from `IpvsRuleSet`, because both functions of this file concern the
 * whole node.
 *
 * The kernel loads a module when a tool first asks for it, with the modprobe of the host: ip_vs for the commands of
 * this function; schedulers, `dummy` and the types of ipsets when they are first used. So a container needs neither
 * modprobe nor CAP_SYS_MODULE.
 *
 * Errors: IPVS_UNAVAILABLE, which names everything that is missing; TOOL_MISSING.
 */
export async function checkKernel(runTool: RunTool): Promise<void> {
  await runTool.read(["ip", "-o", "link", "show"]);
  const missing: string[] = [];
  for (const { part, command } of neededParts) {
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
