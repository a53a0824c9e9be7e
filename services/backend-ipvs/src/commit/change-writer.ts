import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { type Batch, formatBatches, makeBatches } from "../diff/batches.ts";
import type { ObjectChange } from "../diff/diff-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import type { ObjectNames } from "../render/object-names.ts";

interface ChangeWriterOptions {
  readonly family: Family;
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
  /** Receives the batches in place of the kernel. */
  readonly print?: ((text: string) => void) | undefined;
}

interface WriteOptions {
  readonly before?: readonly Batch[] | undefined;
  readonly isAll: boolean;
  readonly stages: SyncStages | undefined;
}

interface Written {
  readonly batches: readonly Batch[];
  /** The changes that are in force now: all but the additions that the kernel refused. */
  readonly done: readonly ObjectChange[];
}

/** Additions that a call tries one by one, each with a process of its own; and as many that were refused before. */
const mostAlone = 64;

/**
 * Writes changes of one family to the kernel. `IpvsRuleSet` calls it in each sync and repair. Separate from it, because
 * this class keeps additions that the kernel refuses from stopping all other changes.
 *
 * The kernel refuses some addresses that the API server accepts: a multicast address of IPv6 as an external IP, or an
 * endpoint at a broadcast address of this node. One such Service would fail a batch in every sync. The tools do not
 * name the line of a virtual server that failed, but they go on after it. So the sync after a failure, which reads the
 * kernel, finds little more than the refused additions, and tries the first ones alone. Additions that are refused
 * again are logged and left out. Every later sync that still needs them tries some of them again, also alone.
 */
export class ChangeWriter {
  readonly #options: ChangeWriterOptions;
  /** Additions that were refused alone, the last one at the end. *Shape:* `address ff05::1`. */
  readonly #refused = new Set<string>();
  /** Whether the kernel refused a line of the last batches. */
  #isSuspicious = false;

  constructor(options: ChangeWriterOptions) {
    this.#options = options;
  }

  /**
   * Runs the batches `before`, and then those of the changes; prints them with `--dry-run`. `changes` are all
   * differences from the kernel if `isAll`. Errors: COMMIT_REJECTED, after which some changes may be in force;
   * TOOL_MISSING.
   */
  async write(changes: readonly ObjectChange[], { before = [], isAll, stages }: WriteOptions): Promise<Written> {
    const { names, family, print } = this.#options;
    const { together, alone } = this.#split(changes, isAll);
    const batches = [...before, ...makeBatches(together, names, family)];
    if (batches.length > 0) stages?.committing();
    if (print !== undefined) {
      if (batches.length > 0) print(formatBatches(batches));
      return { batches, done: together };
    }
    await this.#run(batches, alone);
    return { batches, done: [...together, ...(await this.#tryAlone(alone))] };
  }

  /** Refused additions beyond the first ones are in neither list. */
  #split(changes: readonly ObjectChange[], isAll: boolean): Record<"together" | "alone", readonly ObjectChange[]> {
    if (!this.#isSuspicious && this.#refused.size === 0) return { together: changes, alone: [] };
    const additions = changes.filter(isRefusable);
    const byName = new Map(additions.map((change) => [nameOf(change), change]));
    const refused = [...this.#refused].flatMap((name) => byName.get(name) ?? []);
    if (isAll) for (const name of this.#refused) if (!byName.has(name)) this.#refused.delete(name);
    const others = additions.filter((change) => !this.#refused.has(nameOf(change)));
    const suspects = this.#isSuspicious ? others.slice(0, mostAlone) : [];
    const apart = new Set([...refused, ...suspects]);
    return {
      together: changes.filter((change) => !apart.has(change)),
      alone: [...suspects, ...refused.slice(0, mostAlone)],
    };
  }

  /**
   * Runs batches. If the kernel refuses a line, additions that may be refused, too, are tried before the error is
   * thrown: there may be more of them than a call tries, and so each call finds some.
   */
  async #run(batches: readonly Batch[], suspects: readonly ObjectChange[]): Promise<void> {
    this.#isSuspicious = false;
    for (const { command, lines } of batches) {
      try {
        await this.#options.runTool.write(command, lines);
      } catch (error) {
        // No addition is to blame for a line of ipset or iptables-restore.
        this.#isSuspicious = (command[0] === "ipvsadm" || command[0] === "ip") && isRefusal(error);
        // An address must wait for its virtual servers, which are in force if the batch of addresses is the one that
        // failed.
        const mayTry = ({ kind }: ObjectChange): boolean => kind === "real" || command[0] === "ip";
        // Another error may follow from this one, e.g. "Service not defined", and would hide it.
        if (this.#isSuspicious) await this.#tryAlone(suspects.filter(mayTry)).catch(() => undefined);
        throw error;
      }
    }
  }

  /** Returns the additions that the kernel accepts. */
  async #tryAlone(additions: readonly ObjectChange[]): Promise<readonly ObjectChange[]> {
    const { names, family, runTool, log } = this.#options;
    const accepted: ObjectChange[] = [];
    for (const change of additions) {
      const name = nameOf(change);
      try {
        for (const { command, lines } of makeBatches([change], names, family)) await runTool.write(command, lines);
        this.#refused.delete(name);
        accepted.push(change);
      } catch (error) {
        if (!isRefusal(error)) throw error;
        if (!this.#refused.has(name)) {
          log.error("refused by the kernel: a Service is served without it", { family, name, reason: reasonOf(error) });
        }
        // At the end, so that those beyond the first ones get their turn.
        this.#refused.delete(name);
        this.#refused.add(name);
      }
    }
    return accepted;
  }
}

/** True for additions that may be left out. Without a virtual server, packets would reach the node's own ports. */
function isRefusable({ kind, before }: ObjectChange): boolean {
  return before === undefined && (kind === "real" || kind === "address");
}

/** True if a tool failed because of the object. A missing interface, for example, is no such reason. */
function isRefusal(error: unknown): boolean {
  return (
    error instanceof BackendIpvsError &&
    error.code === "COMMIT_REJECTED" &&
    /invalid|cannot assign/i.test(error.message)
  );
}

function nameOf({ kind, key }: ObjectChange): string {
  return `${kind} ${key}`;
}
