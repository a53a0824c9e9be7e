import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/kernel-objects.ts";

/**
 * Checks that the tools can be started, and that the kernel has IPVS and ipsets; it changes nothing. The kernel loads a
 * module when a tool first asks for it, with the modprobe of the host. So a container needs neither modprobe nor
 * CAP_SYS_MODULE. What else is missing, e.g. a type of ipsets or a match of iptables, the first sync reports in the words
 * of the tool, before it changes any virtual server.
 *
 * Errors: IPVS_UNAVAILABLE, TOOL_MISSING.
 */
export async function checkKernel(runTool: RunTool): Promise<void> {
  await runTool.read(["ip", "-o", "link", "show"]);
  const missing: string[] = [];
  for (const { part, command } of listedParts) {
    const fault = await faultOfRead(runTool, command);
    if (fault !== undefined) missing.push(`${part}: ${fault}`);
  }
  if (missing.length > 0) {
    throw new BackendIpvsError("IPVS_UNAVAILABLE", `the node's kernel gives no access to ${missing.join("; ")}`);
  }
}

/** Parts of the kernel that are needed, and a command that fails without them. */
const listedParts = [
  { part: "IPVS (module ip_vs)", command: ["ipvsadm", "-S", "-n"] },
  { part: "ipsets (module ip_set)", command: ["ipset", "-t", "save"] },
] as const;

async function faultOfRead(runTool: RunTool, command: readonly string[]): Promise<string | undefined> {
  try {
    await runTool.read(command);
    return undefined;
  } catch (error) {
    if (!(error instanceof BackendIpvsError) || error.code === "TOOL_MISSING") throw error;
    return error.message.replace(/^\[\w+\] /, "");
  }
}

/** Settings of IPVS that hold for the whole node. */
export interface KernelSettings {
  readonly isStrictArp: boolean;
  /** In milliseconds; 0 keeps the kernel's value. */
  readonly timeouts: { readonly tcpMs: number; readonly tcpFinMs: number; readonly udpMs: number };
}

/**
 * Sets the sysctls that IPVS needs for Services, and timeouts if they are configured. A sysctl that cannot be set is
 * logged, because it may already have its value on the host.
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

/** Annotation that chooses the scheduler of a Service. */
export const schedulerAnnotation = "kpng.io/ipvs-scheduler";

/** True for a text that may be the name of a scheduler of IPVS. *Shape:* `rr`, `lblcr`. */
export function isSchedulerName(text: string): boolean {
  return /^[a-z][a-z0-9]{1,14}$/.test(text);
}

/** A virtual server that exists only while a scheduler is tried, at an address that no host has (RFC 5737). */
const trialServer = "-u 192.0.2.0:9";

const noName = "it is not the name of a scheduler";

/** True for a reason that holds until the next start: the kernel has no such module. */
function isLasting(reason: string): boolean {
  return reason === noName || reason.includes("not found");
}

interface SchedulersOptions {
  readonly runTool: RunTool;
  /** Scheduler of Services without annotation. *Shape:* `rr`. */
  readonly standard: string;
  readonly log: Log;
  /** Whether schedulers may be tried in the kernel; otherwise the kernel is assumed to have all of them. */
  readonly mayTry: boolean;
}

/**
 * Chooses the IPVS scheduler (load-balancing algorithm) of each Service. Each name is tried in the kernel, which then
 * loads its module, and not again if the kernel has it or lacks it: a virtual server with an unknown scheduler would
 * fail a whole sync, so an annotation could stop all updates of a node.
 *
 * The backend creates one object and checks the standard scheduler with `faultOf`.
 */
export class Schedulers {
  readonly #options: SchedulersOptions;
  readonly #faults = new Map<string, Promise<string | undefined>>();
  /** The last trial; never rejects. Both families ask at the same time, and there is one virtual server for trials. */
  #lastTrial: Promise<unknown> = Promise.resolve();

  constructor(options: SchedulersOptions) {
    this.#options = options;
  }

  /**
   * Returns the scheduler of a Service: that of its annotation, or the standard one if there is none or the kernel
   * lacks it, which is logged once.
   */
  async schedulerOf(view: ServiceView | undefined): Promise<string> {
    const { standard } = this.#options;
    const asked = view?.service.annotations[schedulerAnnotation];
    if (asked === undefined || asked === standard) return standard;
    return (await this.faultOf(asked)) === undefined ? asked : standard;
  }

  /** Returns why a scheduler cannot be used; undefined if it can. */
  faultOf(name: string): Promise<string | undefined> {
    const known = this.#faults.get(name);
    if (known !== undefined) return known;
    const trial = this.#lastTrial.then(() => this.#try(name));
    this.#lastTrial = trial;
    const fault = trial.then((reason) => {
      const { log, standard } = this.#options;
      if (reason !== undefined)
        log.error("scheduler not available: its Services use another one", { scheduler: name, used: standard, reason });
      return reason;
    });
    // Users choose the annotations, so the number of remembered names is bounded.
    if (this.#faults.size < 1_000) this.#faults.set(name, fault);
    // Any other failure may pass, e.g. a lack of memory.
    void fault.then((reason) => reason !== undefined && !isLasting(reason) && this.#faults.delete(name));
    return fault;
  }

  async #try(name: string): Promise<string | undefined> {
    const { runTool, mayTry } = this.#options;
    if (!isSchedulerName(name)) return noName;
    if (!mayTry) return undefined;
    // A run that was killed may have left its trial.
    await this.#deleteTrial();
    try {
      await runTool.write(["ipvsadm", "-R"], [`-A ${trialServer} -s ${name}`]);
    } catch (error) {
      const reason = reasonOf(error);
      // Another instance tries a scheduler at this moment.
      return reason.includes("already exists") ? undefined : reason;
    }
    await this.#deleteTrial();
    return undefined;
  }

  async #deleteTrial(): Promise<void> {
    await this.#options.runTool.write(["ipvsadm", "-R"], [`-D ${trialServer}`]).catch(() => undefined);
  }
}
