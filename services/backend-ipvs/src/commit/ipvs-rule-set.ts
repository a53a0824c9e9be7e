import { familyLabels } from "@kpng/backend-kit/observe/proxy-metrics.ts";
import { forEachService } from "@kpng/backend-kit/proxy/for-each-service.ts";
import type { FamilyPlan, RuleChange, RuleList, RuleSet } from "@kpng/backend-kit/proxy/rule-set.ts";
import type { SyncRequests } from "@kpng/backend-kit/sync/sync-loop.ts";
import type { SyncStages } from "@kpng/backend-kit/types/sync-update.ts";
import { type AddressSet, type Family, isLinkLocal } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { realClock } from "@kpng/process/clock.ts";
import type { Log } from "@kpng/process/log.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";
import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { Gauge, type Registry } from "prom-client";
import {
  allIds,
  type Batch,
  diffObjects,
  formatBatches,
  type InstalledObjects,
  type ObjectChange,
} from "../diff/diff-objects.ts";
import { companionsOf, Draining } from "../diff/draining.ts";
import { ForeignServers, ServiceObjects } from "../diff/service-objects.ts";
import { readConnectionCounts } from "../read/connection-counts.ts";
import { type ReadObjects, readObjects } from "../read/read-objects.ts";
import type { RunTool } from "../read/run-tool.ts";
import { FirewallMarks } from "../render/firewall-marks.ts";
import {
  finishing,
  type ObjectKind,
  type ObjectNames,
  parseServer,
  type ServerId,
  serverOfReal,
  setCreation,
  setName,
  setRoles,
} from "../render/kernel-objects.ts";
import { NodePlaces } from "../render/node-places.ts";
import { frameJumps, renderFrame } from "../render/render-frame.ts";
import { type RenderContext, renderService } from "../render/render-service.ts";
import { ChangeWriter, makeIpvsChange } from "./change-writer.ts";
import { createInterface, hasJump, interfaceCreation, NodeFrame, readFrame } from "./node-frame.ts";

interface IpvsRuleSetOptions {
  readonly family: Family;
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  /** Scheduler of all virtual servers. *Shape:* `rr`. */
  readonly scheduler: string;
  /** Addresses at which this backend does not take over virtual servers of other programs. */
  readonly excludedCIDRs: readonly string[];
  readonly masqueradeBit: number;
  readonly requests: SyncRequests;
  /** Returns the node's addresses, except those on our interface. */
  readonly localAddresses: () => AddressSet;
  readonly log: Log;
  /** If it is set, it receives the batches instead of the kernel; used for `--dry-run` and `--diff`. */
  readonly print?: ((text: string) => void) | undefined;
  /** Monotonic time in milliseconds. Default that of `realClock`. */
  readonly nowMs?: (() => number) | undefined;
  /** Returns the number of connections of each real server. Default: reads them from the kernel. */
  readonly readConnections?: typeof readConnectionCounts | undefined;
}

const objectKinds: readonly ObjectKind[] = ["server", "real", "address", ...setRoles];

/** Pause between two readings of the connections, as a multiple of the duration of one reading. */
const lookPause = 20;

/**
 * The virtual servers, addresses, ipsets and rules of one family.
 *
 * Problem: IPVS balances connections only to addresses of this node, uses the same endpoint set of a virtual server for
 * all senders, and can neither refuse nor masquerade packets. The required tools (ipvsadm, ipset, ip, iptables) have no
 * common transaction.
 *
 * Idea: every service address is put on one interface, every frontend is a virtual server, and its endpoints are real
 * servers. A constant number of iptables rules does everything else by looking up ipsets, so Services add elements but
 * no rules:
 *
 * ```text
 * address   10.96.0.1 on kube-ipvs0                       makes packets enter INPUT, where IPVS takes them
 * server    -t 10.96.0.1:80 -s rr                         the frontend of default/web
 * real      -t 10.96.0.1:80 -r 10.1.0.7:8080 -w 1         an endpoint
 * ipsets    SERVERS 10.96.0.1,tcp:80                      the record: this virtual server is ours
 *           REFUSED, DROPPED, …                           frontends without an endpoint, source ranges, masquerade
 *           POD-MARKS, NODE-MARKS                         policy Local: firewall mark, with a virtual server of its own
 * ```
 *
 * A sync runs several tools one after another, and each line affects packets immediately. So `makeBatches` chooses an
 * order in which every intermediate state is valid. For a new Service at an address that already exists:
 *
 * ```text
 * 1 ipset    add REFUSED and SERVERS 10.96.0.1,tcp:80     refused, so it reaches no program on the node
 * 2 ipvsadm  -A -t 10.96.0.1:80, -a … -r 10.1.0.7:8080
 * 3 ipset    del REFUSED 10.96.0.1,tcp:80                 served from here on
 * 4 ip       address add (only a new address)             until now, packets went where they went before
 * 5 ipvsadm  -D, 6 ipset del                              deleted objects, the record last
 * ```
 *
 * Invariants:
 *
 * - An element of SERVERS or MARKS is created before its virtual server and deleted after it. Virtual servers without
 *   such an element belong to other programs, and are taken over only if they have the address and port of a Service.
 * - A removed TCP or SCTP endpoint gets weight 0, and is deleted when the kernel counts no more connections to it
 *   (`Draining`); a deleted Service keeps its address until then. Nothing is stored: after a restart, all endpoints
 *   that are installed but not desired drain. UDP endpoints are deleted immediately, unless they are terminating and
 *   still serving.
 * - Only a full sync and a repair read the kernel; a partial sync compares the touched objects with the objects that
 *   were last read or written. After a failure, the kernel is read again.
 * - The tools continue after a line that the kernel refuses, and do not say which line it was; `ChangeWriter` finds it
 *   by reading the kernel once.
 *
 * Measured and rejected: reading all connections in each sync, because it takes too long with 100 000 endpoints
 * (instead, each reading is followed by a pause of 20 times its duration); policy Local without marks, so that pods
 * reach only local endpoints, because pods that use a load-balancer IP would fail on nodes without an endpoint
 * (docs/design/ipvs.md); an interface name of our own, because Felix would then skip ingress policies.
 */
export class IpvsRuleSet implements RuleSet {
  readonly #options: IpvsRuleSetOptions;
  readonly #frame: NodeFrame;
  readonly #writer: ChangeWriter;
  readonly #draining: Draining;
  readonly #nowMs: () => number;
  #objects = new ServiceObjects();
  #marks: FirewallMarks;
  #nodePlaces = new NodePlaces([]);
  /** The objects in the kernel; undefined if they are unknown, in which case the next call reads them. */
  #installed: InstalledObjects | undefined;
  /**
   * Foreign virtual servers at the last reading of the kernel. If one appears later, a commit fails, and the next call
   * reads the kernel again.
   */
  #foreign = new ForeignServers([]);
  /**
   * Earliest time of the next reading of the connections. On a node with 100 000 endpoints, reading them in each sync
   * would take too long.
   */
  #nextLookMs = Number.NEGATIVE_INFINITY;
  #plan: FamilyPlan | undefined;
  /** Inputs of the last rendering except the Service plans. */
  #contextText = "";

  constructor(options: IpvsRuleSetOptions) {
    this.#options = options;
    this.#frame = new NodeFrame(options);
    this.#writer = new ChangeWriter({ ...options, ownersOf: (isOf) => this.#objects.ownersOf(isOf) });
    this.#draining = new Draining();
    this.#nowMs = options.nowMs ?? realClock.nowMs;
    this.#marks = new FirewallMarks(options.names.markRange);
  }

  get family(): Family {
    return this.#options.family;
  }

  get desired(): RuleList {
    // A real server that would only finish existing flows need not be installed.
    const expected = (objects: Iterable<readonly [key: string, value: string]>) =>
      [...objects].filter(([, value]) => value !== finishing);
    return listOf(
      (kind) => expected(this.#objects.ofKind(kind)),
      (service) => (kind) => expected(this.#objects.ofService(service).get(kind) ?? []),
      (kind, key) => (this.#writer.isRefused(kind, key) ? "# refused by the kernel" : ""),
    );
  }

  get refusedCount(): number {
    return this.#writer.refusedCount;
  }

  get installed(): RuleList {
    const ofKind = (kind: ObjectKind) => [...(this.#installed?.get(kind) ?? [])];
    return listOf(ofKind, (service) => {
      const ofService = this.#objects.ofService(service);
      // Draining real servers are included.
      const isOwn = (kind: ObjectKind, key: string) =>
        kind === "real" ? ofService.get("server")?.has(serverOfReal(key)) : ofService.get(kind)?.has(key);
      return (kind) => ofKind(kind).filter(([key]) => isOwn(kind, key));
    });
  }

  async sync(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all", stages: SyncStages): Promise<RuleChange> {
    this.#plan = plan;
    if (touched === "all" || this.#installed === undefined) {
      await this.#render(plan, "all");
      return await this.#syncAll(plan, stages);
    }
    await this.#render(plan, touched);
    return await this.#syncTouched(this.#installed, stages);
  }

  async repair(): Promise<RuleChange> {
    if (this.#plan === undefined) throw new Error("repair before the first sync");
    await this.#render(this.#plan, new Set());
    return await this.#syncAll(this.#plan);
  }

  /** Whether the interface and the jumps are there, and all addresses and virtual servers that the ipsets record. */
  async isInstalled(): Promise<boolean> {
    const { runTool, names } = this.#options;
    const frame = await readFrame(runTool, names, this.family);
    const { objects, isInterfaceUp } = await readObjects(runTool, names, this.family);
    const keysOf = (kind: ObjectKind): readonly string[] => [...(objects.get(kind)?.keys() ?? [])];
    const records = [...keysOf("ADDRESSES"), ...keysOf("SERVERS"), ...keysOf("MARKS")];
    const servers = keysOf("server").map((server) => parseServer(server)?.element);
    const isThere = new Set<string | undefined>([...keysOf("address"), ...servers]);
    return (
      isInterfaceUp &&
      frameJumps(names).every((jump) => hasJump(frame, jump)) &&
      records.every((record) => isThere.has(record))
    );
  }

  /**
   * Renders the touched Services, or all Services if the node or its addresses have changed. Then renders the Services
   * whose node ports thereby gain or lose an address and port.
   */
  async #render(plan: FamilyPlan, touched: ReadonlySet<ServiceKey> | "all"): Promise<void> {
    const { scheduler, localAddresses } = this.#options;
    // Leave out link-local addresses: each new pod may add a link with one, and this must not cause all Services to be
    // rendered again.
    const local = localAddresses()
      [this.family].filter((address) => !isLinkLocal(address))
      .toSorted();
    const nodePortAddresses = addressesForNodePorts(plan.node, local);
    const text = JSON.stringify([plan.node, local, nodePortAddresses]);
    const isAll = touched === "all" || text !== this.#contextText;
    this.#contextText = text;
    if (isAll) {
      this.#objects = new ServiceObjects();
      this.#marks = new FirewallMarks(this.#options.names.markRange);
      this.#nodePlaces = new NodePlaces(nodePortAddresses);
      // A partial sync must also find the installed objects that no Service needs any more.
      for (const [kind, ofKind] of this.#installed ?? [])
        for (const key of ofKind.keys()) this.#objects.touch(kind, key);
    }
    const common = {
      node: plan.node,
      nodePortAddresses,
      nodePlaces: this.#nodePlaces,
      localAddresses: new Set(local),
      marks: this.#marks,
    };
    const again = new Set<ServiceKey>();
    for (const keys of [isAll ? plan.keys() : touched, again]) {
      await forEachService(keys, (key) => {
        const service = plan.service(key);
        for (const other of this.#nodePlaces.put(key, service)) again.add(other);
        this.#marks.release(key);
        const view = plan.view?.(key);
        const context: RenderContext = { ...common, view, scheduler };
        this.#objects.put(key, service === undefined ? undefined : renderService(service, context));
      });
    }
  }

  async #syncAll({ node }: FamilyPlan, stages?: SyncStages): Promise<RuleChange> {
    const { names, runTool } = this.#options;
    this.#installed = undefined;
    const foreign = new ForeignServers(this.#options.excludedCIDRs);
    const isRecognized = (server: string): boolean => this.#isOfService(server) && !foreign.noteIfExcluded(server);
    const read = await readObjects(runTool, names, this.family, { isRecognized });
    this.#foreign = foreign;
    this.#draining.forgetUnless((real) => read.objects.get("real")?.has(real) === true);
    await this.#finishDraining();
    this.#objects.takeTouched();
    const changes = this.#diff(read.objects, allIds(objectKinds, this.#objects, read.objects));
    const { done, parts } = await this.#writeAll(node, read, changes, stages);
    this.#apply(read.objects, done);
    return makeIpvsChange("full", done, parts);
  }

  /**
   * True for a virtual server at the address and port of a Service, even if the Service has no endpoint there. In that
   * case the virtual server must be deleted; kube-proxy leaves such virtual servers behind.
   */
  #isOfService(server: ServerId): boolean {
    if (this.#objects.valueOf("server", server) !== undefined) return true;
    const element = parseServer(server)?.element ?? "";
    return (["REFUSED", "DROPPED"] as const).some((role) => this.#objects.valueOf(role, element) !== undefined);
  }

  /**
   * Writes all changes to objects, and creates everything that they depend on: the interface, the ipsets and the
   * constant rules. Returns the changes that are in force, and the parts that were missing or different.
   */
  async #writeAll(
    node: NodePlan,
    read: ReadObjects,
    changes: readonly ObjectChange[],
    stages: SyncStages | undefined,
  ): Promise<{ readonly done: readonly ObjectChange[]; readonly parts: readonly string[] }> {
    const { names, masqueradeBit, runTool, print } = this.#options;
    const { family } = this;
    const missing = setRoles.filter((role) => !read.sets.has(role));
    const before: Batch[] = [];
    if (missing.length > 0) {
      const lines = missing.map((role) => setCreation(names, family, role));
      before.push({ command: ["ipset", "-exist", "restore"], lines });
    }
    const { kind, frame, batch } = await this.#frame.compare((isBesideFelix) =>
      renderFrame({ names, family, node, masqueradeBit, isBesideFelix }),
    );
    // Rules that are only alike are written again, since any of them may have been replaced, but they are no difference
    // that `--diff` could report.
    const writesFrame = kind === "different" || (kind === "alike" && print === undefined);
    if (writesFrame) before.push(batch);
    if (!read.isInterfaceUp) {
      stages?.committing();
      if (print === undefined) await createInterface(runTool, names.interfaceName);
      else print(formatBatches([interfaceCreation(names.interfaceName)]));
    }
    const done = await this.#writer.write(changes, { before, installed: read.objects, compared: "all", stages });
    if (writesFrame && print === undefined) await this.#frame.installed(frame);
    const parts = [
      ...(read.isInterfaceUp ? [] : [`interface ${names.interfaceName}`]),
      ...missing.map((role) => `ipset ${setName(names, family, role)}`),
      ...(kind === "different" ? ["rules"] : []),
    ];
    return { done, parts };
  }

  /** Updates the touched objects, and deletes drained real servers that have no connections. */
  async #syncTouched(installed: InstalledObjects, stages: SyncStages): Promise<RuleChange> {
    await this.#finishDraining();
    const touched = this.#objects.takeTouched();
    const changes = this.#diff(installed, touched);
    // Forget the objects until the write succeeds; after a failure, the next call reads the kernel.
    this.#installed = undefined;
    const done = await this.#writer.write(changes, { installed, compared: touched, stages });
    this.#apply(installed, done);
    return makeIpvsChange("partial", done);
  }

  #diff(installed: InstalledObjects, ids: Parameters<typeof diffObjects>[0]): readonly ObjectChange[] {
    const ourIds = ids.filter(([kind, key]) => !this.#foreign.concerns(kind, key));
    return diffObjects(ourIds, this.#objects, installed, this.#draining, this.#nowMs());
  }

  async #finishDraining(): Promise<void> {
    const { print, runTool, readConnections = readConnectionCounts } = this.#options;
    const startMs = this.#nowMs();
    if (this.#draining.size === 0 || startMs < this.#nextLookMs || print !== undefined) return;
    const connections = await readConnections(runTool);
    const endMs = this.#nowMs();
    this.#nextLookMs = endMs + lookPause * (endMs - startMs);
    for (const real of this.#draining.finish(connections)) {
      const server = serverOfReal(real);
      this.#objects.touch("real", real);
      this.#objects.touch("server", server);
      for (const [kind, key] of companionsOf(server)) this.#objects.touch(kind, key);
    }
  }

  /** Records that changes are in force, and requests a sync that reads the connections of draining real servers. */
  #apply(installed: InstalledObjects, changes: readonly ObjectChange[]): void {
    const known = new Map(installed);
    // The maps of each kind are changed in place, because only this rule set has them.
    for (const { kind, key, after } of changes) {
      const ofKind = known.get(kind) ?? new Map<string, string>();
      known.set(kind, ofKind);
      if (after !== undefined) ofKind.set(key, after);
      else {
        ofKind.delete(key);
        if (kind === "real") this.#draining.forget(key);
      }
    }
    this.#installed = known;
    const lookMs = this.#draining.nextLookMs(this.#nowMs());
    if (lookMs !== undefined && this.#options.print === undefined) {
      const atMs = Math.max(lookMs, this.#nextLookMs);
      this.#options.requests.request(atMs);
    }
  }
}

/**
 * Returns the addresses that serve node ports. Loopback addresses are never among them, because IPVS cannot forward
 * packets from 127.0.0.0/8.
 */
function addressesForNodePorts({ nodePortAddresses }: NodePlan, local: readonly string[]): readonly string[] {
  const chosen = nodePortAddresses === "all" ? local : nodePortAddresses;
  return chosen.filter((address) => !isLoopback(address)).toSorted();
}

type ObjectsOfKind = (kind: ObjectKind) => Iterable<readonly [key: string, value: string]>;

/**
 * Makes a list from two functions: one returns all objects, the other the objects of a single Service. `remark`
 * returns text to append to a line. *Shape of a line:* `server -t 10.96.0.1:80 -s rr`.
 */
function listOf(
  ofKind: ObjectsOfKind,
  ofService: (service: ServiceKey) => ObjectsOfKind,
  remark: (kind: ObjectKind, key: string) => string = () => "",
): RuleList {
  const lineOf = (...words: readonly string[]): string => words.filter((word) => word !== "").join(" ");
  const linesOf = (objects: ObjectsOfKind): readonly string[] =>
    objectKinds.flatMap((kind) =>
      [...objects(kind)].map(([key, value]) => lineOf(kind, key, value, remark(kind, key))),
    );
  return {
    count: () => linesOf(ofKind).length,
    lines: () => linesOf(ofKind).toSorted(),
    linesOf: (service) => linesOf(ofService(service)).toSorted(),
  };
}

/** Registers the metric that counts the objects refused by the kernel. */
export function observeRefused(
  registry: Registry,
  ruleSets: readonly Pick<IpvsRuleSet, "family" | "refusedCount">[],
): void {
  new Gauge({
    name: "kpng_ipvs_refused_objects",
    help: "Addresses and endpoints that the kernel refuses, so that Services are served without them",
    labelNames: ["ip_family"] as const,
    registers: [registry],
    collect() {
      for (const { family, refusedCount } of ruleSets) this.set({ ip_family: familyLabels[family] }, refusedCount);
    },
  });
}
