import type { RuleChange, RuleDifference } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import type { Family } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import {
  type Batch,
  formatBatches,
  type InstalledObjects,
  makeBatches,
  type ObjectChange,
} from "../diff/diff-objects.ts";
import type { ObjectId, ServiceObjects } from "../diff/service-objects.ts";
import { readObjects } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError, type ObjectNames, serverOfReal } from "../render/kernel-objects.ts";

/**
 * Describes the changes of one sync or repair for log, metrics and inspection. `parts` are the interface, ipsets and
 * rules that were missing or different. *Shape:* `rules`, `ipset KPNGIPVS-MASQ`.
 */
export function makeIpvsChange(
  mode: "partial" | "full",
  objects: readonly ObjectChange[],
  parts: readonly string[] = [],
): RuleChange {
  const deletes = objects.filter(({ after }) => after === undefined).length;
  const puts = objects.length - deletes;
  return {
    mode: objects.length + parts.length === 0 ? "none" : mode,
    fields: { puts, deletes, parts: parts.length, example: parts[0] ?? objects[0]?.key },
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
  /** {@link ServiceObjects.ownersOf}, for the log. */
  readonly ownersOf: ServiceObjects["ownersOf"];
  /** If it is set, it receives the batches instead of the kernel. */
  readonly print?: ((text: string) => void) | undefined;
}

interface WriteOptions {
  /** Objects in the kernel before the changes. */
  readonly installed: InstalledObjects;
  /** Batches that run first: they create what the changes depend on, such as ipsets. */
  readonly before?: readonly Batch[] | undefined;
  /** The objects that were compared with the kernel. Without a change, such an object no longer counts as refused. */
  readonly compared: readonly ObjectId[] | "all";
  readonly stages: SyncStages | undefined;
}

/**
 * Writes changes for one family to the kernel.
 *
 * The kernel refuses some addresses that the API server accepts, such as an IPv6 multicast address as an external IP,
 * or an endpoint at a broadcast address of this node. The tools continue after such a line, but do not say which line
 * it was. So if a batch fails with an error about an address, the kernel is read: additions that are missing there were
 * refused. They are logged once, left out, and tried again whenever they are compared. Any other change that is missing
 * in the kernel makes the sync fail. A refused address is removed from the ipset ADDRESSES, because the rules for this
 * ipset would refuse and drop other programs' packets to that address.
 */
export class ChangeWriter {
  readonly #options: ChangeWriterOptions;
  /** Names of refused objects. *Shape:* `address ff05::1`. */
  readonly #refused = new Set<string>();

  constructor(options: ChangeWriterOptions) {
    this.#options = options;
  }

  /** Number of objects that Services need and that the kernel has refused. */
  get refusedCount(): number {
    return this.#refused.size;
  }

  isRefused(kind: ObjectChange["kind"], key: string): boolean {
    return this.#refused.has(`${kind} ${key}`);
  }

  /**
   * Runs the batches `before` and then the batches for the changes. With `--dry-run` it prints them instead.
   * Returns the changes that are now in force: without refused additions, but with the changes that keep their addresses
   * out of ADDRESSES.
   *
   * Errors: COMMIT_REJECTED, after which some changes may be in force; READ_FAILED, TOOL_MISSING.
   */
  async write(changes: readonly ObjectChange[], options: WriteOptions): Promise<readonly ObjectChange[]> {
    const { names, family, print } = this.#options;
    const { before = [], installed, compared, stages } = options;
    const missing = new Set(changes.map(nameOf));
    for (const name of compared === "all" ? [...this.#refused] : compared.map(([kind, key]) => `${kind} ${key}`))
      if (!missing.has(name)) this.#refused.delete(name);
    const isRecordOfRefused = ({ kind, key, after }: ObjectChange): boolean =>
      kind === "ADDRESSES" && after !== undefined && this.isRefused("address", key);
    const tried = changes.filter((change) => !isRecordOfRefused(change));
    const batches = [...before, ...makeBatches(tried, installed, names, family)];
    if (batches.length > 0) stages?.committing();
    if (print !== undefined) {
      if (batches.length > 0) print(formatBatches(batches));
      return tried;
    }
    const refused = await this.#run(batches, tried);
    const records = this.#noteRefused(tried, refused);
    await this.#run(makeBatches(records, new Map(), names, family), []);
    return [...tried.filter((change) => !refused.has(change)), ...records];
  }

  /** Runs batches of changes. Returns the additions that the kernel refused. */
  async #run(batches: readonly Batch[], changes: readonly ObjectChange[]): Promise<ReadonlySet<ObjectChange>> {
    const refused = new Set<ObjectChange>();
    for (const { command, lines } of batches) {
      try {
        await this.#options.runTool.write(command, lines);
      } catch (error) {
        if (!isRefusal(error, command)) throw error;
        // None is missing if the line deleted an object that was already gone.
        const missing = await this.#missing(changes, command, lines);
        if (!missing.every(isRefusable)) throw error;
        this.#logRefused(missing, error);
        for (const change of missing) refused.add(change);
      }
    }
    return refused;
  }

  /** Returns the changes that a run of `tool` with these lines should have made but that are not in force. */
  async #missing(
    changes: readonly ObjectChange[],
    [tool]: readonly string[],
    lines: readonly string[],
  ): Promise<readonly ObjectChange[]> {
    const { runTool, names, family } = this.#options;
    const { objects } = await readObjects(runTool, names, family, { isRecognized: () => true });
    const kinds = tool === "ip" ? ["address"] : ["server", "real"];
    // `makeBatches` deletes virtual servers, with their real servers, in a later run than it makes all other changes.
    const isServerDeletion = ({ kind, after }: ObjectChange): boolean => kind === "server" && after === undefined;
    const later = lines.some((line) => line.startsWith("-D ")) ? [] : changes.filter(isServerDeletion);
    const laterServers = new Set(later.map(({ key }) => key));
    return changes.filter(
      ({ kind, key, after }) =>
        kinds.includes(kind) &&
        objects.get(kind)?.get(key) !== after &&
        !laterServers.has(kind === "real" ? serverOfReal(key) : key),
    );
  }

  /** Logs objects that were not refused before, with the Services that need them (the first few of each). */
  #logRefused(changes: readonly ObjectChange[], error: BackendIpvsError): void {
    const { family, log, ownersOf } = this.#options;
    const added = new Set(changes.map(nameOf)).difference(this.#refused);
    if (added.size === 0) return;
    const services = ownersOf((kind, key) => added.has(`${kind} ${key}`));
    log.error("refused by the kernel: Services are served without these objects", {
      family,
      count: added.size,
      objects: [...added].slice(0, 10),
      services: services.slice(0, 10),
      reason: reasonOf(error),
    });
  }

  /**
   * Records which additions were refused. Returns the changes that correct the ipset ADDRESSES, which so far contains
   * all addresses except those refused earlier.
   */
  #noteRefused(tried: readonly ObjectChange[], refused: ReadonlySet<ObjectChange>): readonly ObjectChange[] {
    return tried.filter(isRefusable).flatMap((change) => {
      const wasRefused = this.#refused.delete(nameOf(change));
      const isRefused = refused.has(change);
      if (isRefused) this.#refused.add(nameOf(change));
      return change.kind === "address" && wasRefused !== isRefused ? [recordOf(change.key, !isRefused)] : [];
    });
  }
}

/** Returns the change that puts an address into the ipset of service addresses, or removes it. */
function recordOf(key: string, isRecorded: boolean): ObjectChange {
  return { kind: "ADDRESSES", key, before: isRecorded ? undefined : "", after: isRecorded ? "" : undefined };
}

/**
 * True for additions that may be left out. A virtual server must not be left out, because without it packets would
 * reach the node's own ports.
 */
function isRefusable({ kind, before, after }: ObjectChange): boolean {
  return before === undefined && after !== undefined && (kind === "real" || kind === "address");
}

/**
 * True if a tool failed because of an address ("Invalid …", "Cannot assign …"), and not, for example, because of a
 * missing interface. Failures of ipset and iptables-restore are never due to an address.
 */
function isRefusal(error: unknown, [tool]: readonly string[]): error is BackendIpvsError {
  return (
    (tool === "ipvsadm" || tool === "ip") &&
    error instanceof BackendIpvsError &&
    error.code === "COMMIT_REJECTED" &&
    /invalid|cannot assign/i.test(error.message)
  );
}

function nameOf({ kind, key }: ObjectChange): string {
  return `${kind} ${key}`;
}
