import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import type { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceView } from "@kpng/model/node-view.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError, type ObjectNames, setName, setTypeNames } from "../render/kernel-objects.ts";
import { iptablesTool } from "./node-frame.ts";

interface CheckOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  /** Families that the node serves. Default: those of this machine. */
  readonly families?: readonly Family[];
}

/**
 * Checks that the tools are installed and that the kernel has what they ask for; it changes nothing.
 *
 * The kernel loads a module when a tool first asks for it, with the modprobe of the host: for the commands of this
 * function all but schedulers. So a container needs neither modprobe nor CAP_SYS_MODULE.
 *
 * Errors: IPVS_UNAVAILABLE, which names everything that is missing with its module; TOOL_MISSING.
 */
export async function checkKernel({ names, runTool, families = nodeFamilies() }: CheckOptions): Promise<void> {
  await runTool.read(["ip", "-o", "link", "show"]);
  const missing: string[] = [];
  for (const { part, command } of listedParts) {
    const fault = await faultOfRead(runTool, command);
    if (fault !== undefined) missing.push(`${part}: ${fault}`);
  }
  const trials = [interfaceTrial(names), ...setTypeNames.map(setTrial(names)), ...families.flatMap(ruleTrials(names))];
  for (const { part, command, lines, lacking } of trials) {
    const said = await runTool.stderrOf(command, lines);
    const faults = new Map<string, string>();
    // Some lines are only warnings about something else, or name a part again.
    for (const line of said.split("\n").filter((each) => lacking.test(each))) {
      const name = part(line);
      if (!faults.has(name)) faults.set(name, line);
    }
    for (const [name, line] of faults) missing.push(`${name}: ${line}`);
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

/** A run of a tool that changes nothing, and that says so if the kernel lacks something. */
interface Trial {
  /** Returns the name of the part that is missing by a line that matches `lacking`, with its module. */
  readonly part: (line: string) => string;
  readonly command: readonly string[];
  readonly lines: readonly string[];
  /** Matches each line that names a missing part. The tool may say something else, e.g. that a lock is held. */
  readonly lacking: RegExp;
}

/** The kernel looks for the type of an interface, and loads its module, before it refuses the multicast address. */
function interfaceTrial({ interfaceName }: ObjectNames): Trial {
  return {
    part: () => "dummy interfaces (module dummy)",
    command: ["ip", "-batch", "-"],
    lines: [`link add ${interfaceName} address 01:00:00:00:00:00 type dummy`],
    lacking: /unknown device type|operation not supported/i,
  };
}

/** `ipset` asks the kernel for the type of a set before it refuses a limit that is no number. */
function setTrial({ prefix }: ObjectNames): (type: string) => Trial {
  return (type) => ({
    part: () => `ipsets of type ${type} (module ip_set_${type.replace(":", "_").replaceAll(",", "")})`,
    command: ["ipset", "restore"],
    lines: [`create ${prefix}-CHECK ${type} ${type.startsWith("bitmap") ? "range" : "maxelem"} none`],
    lacking: /set type not supported/,
  });
}

/**
 * Returns runs of iptables-restore that parse rules with all matches and targets of `renderFrame`, and commit none: a
 * parser asks the kernel for each match and target. Only the last rule may name ipsets, because the parser ends where
 * one does not exist yet.
 */
function ruleTrials(names: ObjectNames): (family: Family) => readonly Trial[] {
  return (family) => {
    const [addresses, marks] = [setName(names, family, "ADDRESSES"), setName(names, family, "NODE-MARKS")];
    const rules = {
      mangle: [
        "-j MARK --set-xmark 0x0/0x1",
        `-m set --match-set ${addresses} dst -j SET --map-set ${marks} dst,dst --map-mark`,
      ],
      nat: ["-m mark --mark 0x1/0x1 -j MASQUERADE --random-fully"],
      filter: ['-m conntrack --ctstate NEW -m comment --comment "kpng ipvs" -j REJECT'],
    };
    const command = [iptablesTool(family, "restore"), "--test", "--noflush", "--wait", "5"];
    return Object.entries(rules).map(([table, lines]) => ({
      part: (line) => nameOfPart(family, table, line),
      command,
      lines: [`*${table}`, ...lines.map((line) => `-A OUTPUT ${line}`), "COMMIT"],
      lacking: /unable to initialize table|missing kernel module|Couldn't load|Can't open socket|Permission denied/,
    }));
  };
}

function nameOfPart(family: Family, table: string, line: string): string {
  const tables = family === "v4" ? "iptables" : "ip6tables";
  const [, extension] = /(?:Extension|Couldn't load (?:match|target)) [`']?(\w+)/.exec(line) ?? [];
  if (extension === undefined) return `the table ${table} of ${tables} (module ${tables.slice(0, -1)}_${table})`;
  const ownModule = family === "v4" ? "ipt_REJECT" : "ip6t_REJECT";
  const shared = extension === "MASQUERADE" ? "xt_MASQUERADE" : `xt_${extension.toLowerCase()}`;
  return `${extension} of ${tables} (module ${extension === "REJECT" ? ownModule : shared})`;
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
