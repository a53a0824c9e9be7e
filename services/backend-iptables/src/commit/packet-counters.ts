import { type Log, reasonOf } from "@kpng/process/log.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import type { RunTool } from "../read/run-tool.ts";
import type { CounterNames } from "../render/render-options.ts";
import type { RestoreRules } from "./restore-rules.ts";

export interface PacketCountersOptions {
  /** Of all our chains, e.g. "KPNG-": instances do not count for each other. */
  readonly prefix: string;
  readonly run: RunTool;
  readonly restore: RestoreRules;
  readonly log: Log;
}

/** Time for a tool that asks the kernel for a few bytes. *Unit:* milliseconds. */
const timeoutMs = 10_000;

/** Names of the counters of an instance; the kernel takes 31 characters. */
export function counterNames(prefix: string): CounterNames {
  const own = prefix.slice(0, -1).toLowerCase();
  return { invalidDropped: `${own}_invalid_dropped_pkts`, localhostAccepted: `${own}_localhost_nps_pkts` };
}

/**
 * Counters of the kernel that rules count packets with (`nfacct`), of one family.
 *
 * Few kernels have them, and few nodes the program; rules are made without them then, which is said once.
 */
export class PacketCounters {
  readonly #options: PacketCountersOptions;
  readonly #names: CounterNames;
  #isOpen = false;
  /** Why not, as it was said last. */
  #reason: string | undefined = "not yet asked";

  constructor(options: PacketCountersOptions) {
    this.#options = options;
    this.#names = counterNames(options.prefix);
  }

  /** Undefined while rules must do without. */
  get names(): CounterNames | undefined {
    return this.#isOpen ? this.#names : undefined;
  }

  /**
   * Makes the counters if they are not there, and finds out whether rules can use them. Never rejects.
   *
   * To be called before all rules are compared: somebody may have taken the counters away, and rules that name them would
   * be refused for ever.
   */
  async open(): Promise<void> {
    const reason = await this.#open();
    this.#isOpen = reason === undefined;
    if (reason === this.#reason) return;
    this.#reason = reason;
    const { log } = this.#options;
    if (reason !== undefined) log.info("rules do not count packets", { reason });
    else log.info("rules count packets", { ...this.#names });
  }

  /** Returns why not. */
  async #open(): Promise<string | undefined> {
    const { run, restore, prefix } = this.#options;
    try {
      for (const name of Object.values(this.#names)) {
        const { exitCode, stderr } = await run(["nfacct", "add", name], { timeoutMs });
        // The kernel says EBUSY of one that is there (net/netfilter/nfnetlink_acct.c), from a run before this one.
        if (exitCode !== 0 && !/exist|busy/i.test(stderr)) return `nfacct add (exit ${exitCode}): ${stderr.trim()}`;
      }
      if (this.#isOpen) return undefined;
      // Only the kernel knows whether it has the match, and iptables-nft does not tell it of a rule that is gone again with
      // the end of the transaction. Who is killed in between leaves a chain that the next full sync takes away.
      const chain = `${prefix}PROBE`;
      const rule = `-A ${chain} -m nfacct --nfacct-name ${this.#names.invalidDropped} -j RETURN`;
      await restore(`*filter\n:${chain} - [0:0]\n${rule}\nCOMMIT\n`);
      await restore(`*filter\n:${chain} - [0:0]\n-X ${chain}\nCOMMIT\n`);
      return undefined;
    } catch (error) {
      const isMissing = error instanceof BackendIptablesError && error.code === "IPTABLES_MISSING";
      return isMissing ? "the program nfacct is not installed" : reasonOf(error);
    }
  }
}

/**
 * The counters that rules in the kernel use already: for who compares with those rules and must not ask the kernel by
 * writing to it. `read` gives the output of iptables-save.
 */
export function countersInUse(
  prefix: string,
  read: (take: (text: string) => void) => Promise<void>,
): Pick<PacketCounters, "open" | "names"> {
  const all = counterNames(prefix);
  let names: CounterNames | undefined;
  return {
    get names() {
      return names;
    },
    open: async () => {
      let saved = "";
      await read((text) => {
        saved += text;
      });
      names = saved.includes(` ${all.invalidDropped} `) ? all : undefined;
    },
  };
}

/** Returns how many packets a counter has seen; undefined if it cannot be read. */
export async function readPackets(name: string, run: RunTool): Promise<number | undefined> {
  const { exitCode, stdout } = await run(["nfacct", "get", name], { timeoutMs });
  const packets = /pkts = (\d+)/.exec(stdout)?.[1];
  return exitCode === 0 && packets !== undefined ? Number(packets) : undefined;
}

/** Removes the counters of an instance whose rules are gone. Where there is no nfacct there are none. */
export async function deleteCounters(prefix: string, run: RunTool): Promise<void> {
  for (const name of Object.values(counterNames(prefix))) {
    await run(["nfacct", "delete", name], { timeoutMs }).catch(() => undefined);
  }
}
