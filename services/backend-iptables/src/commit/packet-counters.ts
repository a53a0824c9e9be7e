import { type Log, reasonOf } from "@kpng/process/log.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import type { RunTool } from "../read/run-tool.ts";
import type { CounterNames } from "../render/render-options.ts";
import type { RestoreRules } from "./restore-rules.ts";

interface PacketCountersOptions {
  /** Prefix of the chains of this instance, e.g. "KPNG-". Each instance has counters of its own. */
  readonly prefix: string;
  readonly run: RunTool;
  readonly restore: RestoreRules;
  readonly log: Log;
}

const timeoutMs = 10_000;

/** Returns the names of the counters of an instance. The kernel allows at most 31 characters. */
function counterNames(prefix: string): CounterNames {
  const own = prefix.slice(0, -1).toLowerCase();
  return { invalidDropped: `${own}_invalid_dropped_pkts`, localhostAccepted: `${own}_localhost_nps_pkts` };
}

/**
 * The kernel counters (`nfacct`) with which the rules of one family count packets. `openRuleSets` makes one for each
 * family, and `IptablesRuleSet` opens it before each full sync. `observeCounters` shows the counters as metrics, and
 * `removeRules` deletes them.
 *
 * Few kernels support these counters, and few nodes have the program nfacct. Without them, rules do not count packets;
 * this is logged once. Separate from `IptablesRuleSet`, which needs only the names of usable counters: this file alone
 * runs nfacct.
 */
export class PacketCounters {
  readonly #options: PacketCountersOptions;
  readonly #names: CounterNames;
  #isOpen = false;
  /** Why the counters cannot be used, as logged last; undefined if they can. */
  #reason: string | undefined = "not checked yet";

  constructor(options: PacketCountersOptions) {
    this.#options = options;
    this.#names = counterNames(options.prefix);
  }

  /** Names of the counters; undefined while rules must not use them. */
  get names(): CounterNames | undefined {
    return this.#isOpen ? this.#names : undefined;
  }

  /**
   * Creates missing counters, and checks whether rules can use them. Never rejects.
   *
   * Call it before each full sync: if another program has deleted the counters, the kernel rejects every transaction
   * with rules that name them.
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

  /** Returns the reason why rules cannot use the counters; undefined if they can. */
  async #open(): Promise<string | undefined> {
    const { run, restore, prefix } = this.#options;
    try {
      for (const name of Object.values(this.#names)) {
        const { exitCode, stderr } = await run(["nfacct", "add", name], { timeoutMs });
        // For a counter that an earlier run created the kernel returns EBUSY (net/netfilter/nfnetlink_acct.c).
        if (exitCode !== 0 && !/exist|busy/i.test(stderr))
          return `nfacct add failed (exit status ${exitCode}): ${stderr.trim()}`;
      }
      if (this.#isOpen) return undefined;
      // Only the kernel knows whether it has the match. iptables-nft does not send it a rule that the same transaction
      // deletes again, so two transactions are needed. A process that is killed between them leaves a chain, which the
      // next full sync deletes.
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
 * The counters that installed rules use, for `--diff` and `--dry-run`, which must not create counters. `openRuleSets`
 * makes it in place of `PacketCounters`. `read` passes the output of iptables-save to its argument.
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

/** Returns the number of packets that a counter has counted; undefined if it cannot be read. */
export async function readPackets(name: string, run: RunTool): Promise<number | undefined> {
  const { exitCode, stdout } = await run(["nfacct", "get", name], { timeoutMs });
  const packets = /pkts = (\d+)/.exec(stdout)?.[1];
  return exitCode === 0 && packets !== undefined ? Number(packets) : undefined;
}

/** Deletes the counters of an instance whose rules are removed. Without nfacct on the node, there are none. */
export async function deleteCounters(prefix: string, run: RunTool): Promise<void> {
  for (const name of Object.values(counterNames(prefix))) {
    await run(["nfacct", "delete", name], { timeoutMs }).catch(() => undefined);
  }
}
