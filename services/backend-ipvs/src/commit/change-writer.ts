import { type RuleChange, type RuleDifference, transactionStart } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import {
  type Batch,
  formatBatches,
  type InstalledObjects,
  makeBatches,
  type ObjectChange,
} from "../diff/diff-objects.ts";
import type { ObjectId } from "../diff/service-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError, type ObjectNames } from "../render/kernel-objects.ts";

/** A change of the objects and rules of one family; the result of each sync and repair. */
export interface IpvsChange extends RuleChange {
  /** Numbers of objects. */
  readonly puts: number;
  readonly deletes: number;
}

interface CallChanges {
  readonly objects: readonly ObjectChange[];
  readonly batches: readonly Batch[];
  /** Interface, ipsets and rules that were missing or different. *Shape:* `rules`, `ipset KPNGIPVS-MASQ`. */
  readonly parts: readonly string[];
}

/** Describes the changes of one sync or repair for log, metrics and inspection. */
export function makeIpvsChange(mode: "partial" | "full", { objects, batches, parts }: CallChanges): IpvsChange {
  const deletes = objects.filter(({ after }) => after === undefined).length;
  const puts = objects.length - deletes;
  return {
    mode: objects.length + parts.length === 0 ? "none" : mode,
    fields: { puts, deletes, parts: parts.length, example: parts[0] ?? objects[0]?.key },
    puts,
    deletes,
    transaction: transactionStart(formatBatches(batches)),
    differences: () => [
      ...parts.map((part) => ({ summary: `${part}: differs`, missing: [], unwanted: [], fields: { part } })),
      ...listDifferences(objects),
    ],
  };
}

function listDifferences(objects: readonly ObjectChange[]): readonly RuleDifference[] {
  return [...Map.groupBy(objects, ({ kind }) => kind)].map(([kind, changes]) => ({
    summary: `${kind}: ${changes.length} objects differ`,
    missing: changes.flatMap(({ key, after }) => (after === undefined ? [] : [`${key} ${after}`.trimEnd()])),
    unwanted: changes.flatMap(({ key, before }) => (before === undefined ? [] : [`${key} ${before}`.trimEnd()])),
    fields: { kind },
  }));
}

interface ChangeWriterOptions {
  readonly family: Family;
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  readonly log: Log;
  /** Services that need an object, for the log. */
  readonly ownersOf: (...id: ObjectId) => readonly ServiceKey[];
  /** Receives the batches in place of the kernel. */
  readonly print?: ((text: string) => void) | undefined;
  /**
   * Additions that a call tries one by one, each with a process of its own; and as many that were refused before.
   * Default 64.
   */
  readonly mostAlone?: number | undefined;
}

/** Context of the changes that `ChangeWriter` writes. */
export interface WriteOptions {
  /** Objects in the kernel before the changes. */
  readonly installed: InstalledObjects;
  readonly before?: readonly Batch[] | undefined;
  /** Whether the changes are all differences from the kernel: then no other object is refused any more. */
  readonly isAll: boolean;
  readonly stages: SyncStages | undefined;
}

interface Written {
  readonly batches: readonly Batch[];
  /**
   * The changes that are in force now: without the additions that the kernel refused, and with the changes that remove
   * the records of refused addresses.
   */
  readonly done: readonly ObjectChange[];
}

/** An object that the kernel refused. */
interface Refusal {
  readonly id: ObjectId;
  /** Owners that the log has named. */
  readonly logged: ReadonlySet<ServiceKey>;
}

/**
 * Writes changes of one family to the kernel.
 *
 * The kernel refuses some addresses that the API server accepts: a multicast address of IPv6 as an external IP, or an
 * endpoint at a broadcast address of this node. One such Service would fail a batch in every sync. The tools do not
 * name the line of a virtual server that failed, but they go on after it. So the sync after a failure, which reads the
 * kernel, finds little more than the refused additions, and tries the first ones alone. Additions that are refused
 * again are logged and left out. Every later sync that still needs them tries some of them again, also alone. The ipset
 * ADDRESSES does not keep a refused address: its rules would refuse and drop packets of others to that address.
 */
export class ChangeWriter {
  readonly #options: ChangeWriterOptions;
  /** Additions that were refused alone by name, the last one at the end. *Shape of a name:* `address ff05::1`. */
  readonly #refused = new Map<string, Refusal>();
  /** Whether the kernel refused a line of the last batches. */
  #isSuspicious = false;

  constructor(options: ChangeWriterOptions) {
    this.#options = options;
  }

  /** Objects that the kernel has refused, including objects that no Service needs since the last full comparison. */
  get refused(): readonly ObjectId[] {
    return [...this.#refused.values()].map(({ id }) => id);
  }

  /**
   * Notes that no Service needs these objects any more, so that the log names the next one that does. A refused object
   * stays known until the next full comparison: in a batch with others, it would fail a sync again.
   */
  forgetOwners(ids: readonly ObjectId[]): void {
    for (const [kind, key] of ids) {
      const refusal = this.#refused.get(nameOf({ kind, key }));
      if (refusal !== undefined) this.#refused.set(nameOf({ kind, key }), { id: refusal.id, logged: new Set() });
    }
  }

  /** Whether the kernel has refused an object. */
  isRefused(kind: ObjectChange["kind"], key: string): boolean {
    return this.#refused.has(nameOf({ kind, key }));
  }

  /**
   * Runs the batches `before`, and then those of the changes; prints them with `--dry-run`. Errors: COMMIT_REJECTED,
   * after which some changes may be in force; TOOL_MISSING.
   */
  async write(changes: readonly ObjectChange[], options: WriteOptions): Promise<Written> {
    const { names, family, print } = this.#options;
    const { before = [], installed, isAll, stages } = options;
    const { together, alone } = this.#split(changes, isAll);
    const batches = [...before, ...makeBatches(together, installed, names, family)];
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
    const { mostAlone = 64 } = this.#options;
    const additions = changes.filter(isRefusable);
    const byName = new Map(additions.map((change) => [nameOf(change), change]));
    const refused = [...this.#refused.keys()].flatMap((name) => byName.get(name) ?? []);
    if (isAll) for (const name of this.#refused.keys()) if (!byName.has(name)) this.#refused.delete(name);
    const others = additions.filter((change) => !this.#refused.has(nameOf(change)));
    const suspects = this.#isSuspicious ? others.slice(0, mostAlone) : [];
    const apart = new Set([...refused, ...suspects]);
    return {
      together: changes.filter((change) => !apart.has(change) && !this.#isRecordOfRefused(change)),
      alone: [...suspects, ...refused.slice(0, mostAlone)],
    };
  }

  #isRecordOfRefused({ kind, key, after }: ObjectChange): boolean {
    return kind === "ADDRESSES" && after !== undefined && this.isRefused("address", key);
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

  /** Returns the changes that are in force afterwards. */
  async #tryAlone(additions: readonly ObjectChange[]): Promise<readonly ObjectChange[]> {
    const done: ObjectChange[] = [];
    for (const addition of additions) {
      const { kind, key } = addition;
      const name = nameOf(addition);
      const known = this.#refused.get(name);
      try {
        await this.#runAlone([addition]);
        // ADDRESSES has each address that was not refused before.
        const record = this.#refused.delete(name) && kind === "address" ? [recordOf(key, "")] : [];
        await this.#runAlone(record);
        done.push(addition, ...record);
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const logged = this.#logRefusal(addition, known, error);
        if (known === undefined) done.push(...(await this.#undo(addition)));
        // At the end, so that those beyond the first ones get their turn.
        this.#refused.delete(name);
        this.#refused.set(name, { id: [kind, key], logged });
      }
    }
    return done;
  }

  /** Logs owners of a refused object that the log has not named yet. Returns all owners. */
  #logRefusal(addition: ObjectChange, known: Refusal | undefined, error: unknown): ReadonlySet<ServiceKey> {
    const { family, log, ownersOf } = this.#options;
    const owners = new Set(ownersOf(addition.kind, addition.key));
    const services = [...owners].filter((owner) => known?.logged.has(owner) !== true);
    if (known === undefined || services.length > 0) {
      const fields = { family, name: nameOf(addition), services, reason: reasonOf(error) };
      log.error("refused by the kernel: Services are served without it", fields);
    }
    return owners;
  }

  /** Returns the changes that undo what an earlier batch has done for an addition. */
  async #undo({ kind, key }: ObjectChange): Promise<readonly ObjectChange[]> {
    const undoing = kind === "address" ? [recordOf(key, undefined)] : [];
    await this.#runAlone(undoing);
    return undoing;
  }

  async #runAlone(changes: readonly ObjectChange[]): Promise<void> {
    const { names, family, runTool } = this.#options;
    for (const { command, lines } of makeBatches(changes, new Map(), names, family))
      await runTool.write(command, lines);
  }
}

/** Returns the change that puts an address into the ipset of service addresses, or removes it. */
function recordOf(address: string, after: "" | undefined): ObjectChange {
  return { kind: "ADDRESSES", key: address, before: after === undefined ? "" : undefined, after };
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

function nameOf({ kind, key }: Pick<ObjectChange, "kind" | "key">): string {
  return `${kind} ${key}`;
}
