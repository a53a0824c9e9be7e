import type { Family } from "@kpng/model/address.ts";
import { finishing, type ObjectKind, type ObjectNames, type SetRole, setName } from "../render/kernel-objects.ts";
import { companionsOf, type Draining } from "./draining.ts";
import type { ObjectId, ServiceObjects } from "./service-objects.ts";

/** Objects in the kernel, as they were last read or written. */
export type InstalledObjects = ReadonlyMap<ObjectKind, Map<string, string>>;

/**
 * A difference between an installed and a desired object. `before` or `after` is undefined if there is no such object.
 */
export interface ObjectChange {
  readonly kind: ObjectKind;
  readonly key: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/**
 * Returns the changes that lead from the installed objects to the objects that Services need. Objects that draining
 * real servers still need are kept. `ids` identifies the objects to compare.
 *
 * Pure except that it adds real servers to `draining`; O(ids + draining).
 */
export function diffObjects(
  ids: readonly ObjectId[],
  desired: ServiceObjects,
  installed: InstalledObjects,
  draining: Draining,
  nowMs: number,
): readonly ObjectChange[] {
  const changes: ObjectChange[] = [];
  const compare = (kind: ObjectKind, key: string, after: string | undefined): void => {
    const before = installed.get(kind)?.get(key);
    if (before !== after) changes.push({ kind, key, before, after });
  };
  // Real servers come first: which of them drain decides which other objects stay.
  for (const [kind, key] of ids) {
    if (kind !== "real") continue;
    const isInstalled = installed.get(kind)?.has(key) === true;
    const desiredValue = desired.valueOf(kind, key);
    const value = desiredValue === finishing && !isInstalled ? undefined : desiredValue;
    if (value !== undefined) draining.forget(key);
    const isKept = value === undefined && isInstalled && draining.keeps(key, nowMs);
    compare(kind, key, isKept ? finishing : value);
  }
  const companions = new Set<string>();
  for (const server of draining.servers) {
    companions.add(`server ${server}`);
    for (const [kind, key] of companionsOf(server)) companions.add(`${kind} ${key}`);
  }
  for (const [kind, key] of ids) {
    if (kind === "real") continue;
    const value = desired.valueOf(kind, key);
    const isKept = value === undefined && companions.has(`${kind} ${key}`);
    compare(kind, key, isKept ? installed.get(kind)?.get(key) : value);
  }
  return changes;
}

/** Returns the identifiers of all desired and installed objects, each once. */
export function allIds(
  kinds: readonly ObjectKind[],
  desired: ServiceObjects,
  installed: InstalledObjects,
): readonly ObjectId[] {
  return kinds.flatMap((kind) => {
    const keys = new Set(installed.get(kind)?.keys());
    for (const [key] of desired.ofKind(kind)) keys.add(key);
    return [...keys].map((key) => [kind, key] as const);
  });
}

/** One run of a tool, with its input. */
export interface Batch {
  /** *Shape:* `["ipvsadm", "-R"]`. */
  readonly command: readonly string[];
  readonly lines: readonly string[];
}

const [ipset, ipvsadm, ip] = [
  ["ipset", "-exist", "restore"],
  ["ipvsadm", "-R"],
  ["ip", "-force", "-batch", "-"],
] as const;

/**
 * Returns the tool runs that make the changes, in the order in which they must run. A new address is added after its
 * virtual servers and their real servers, and an address is deleted before them. Until an address is added, packets go
 * where they went before. A frontend that is created or deleted at an address that stays is refused in the meantime;
 * see `guardedElements`. Pure.
 */
export function makeBatches(
  changes: readonly ObjectChange[],
  installed: InstalledObjects,
  names: ObjectNames,
  family: Family,
): readonly Batch[] {
  const of = (kind: ObjectChange["kind"]) => changes.filter((change) => change.kind === kind);
  const sets = changes.filter(({ kind }) => kind !== "server" && kind !== "real" && kind !== "address");
  const [servers, reals, addresses] = [of("server"), of("real"), of("address")];
  const deletedServers = new Set(servers.filter(isDelete).map(({ key }) => key));
  const isDeletedWithServer = ({ key }: ObjectChange): boolean => deletedServers.has(key.slice(0, key.indexOf(" -r ")));
  const setLine = ({ kind, key, after }: ObjectChange): string => {
    const name = setName(names, family, kind as SetRole);
    return after === undefined ? `del ${name} ${key}` : `add ${name} ${key} ${after}`.trimEnd();
  };
  const { beginning, ending } = guardedElements(changes, installed);
  const guard = (verb: "add" | "del") => (element: string) => `${verb} ${setName(names, family, "REFUSED")} ${element}`;
  const batches: readonly Batch[] = [
    {
      command: ipset,
      lines: [
        ...[...beginning, ...ending].map(guard("add")),
        ...sets.filter((change) => !isDelete(change)).map(setLine),
      ],
    },
    {
      command: ipvsadm,
      lines: [
        ...servers.filter((one) => !isDelete(one)).map((one) => `${isAdd(one) ? "-A" : "-E"} ${one.key} ${one.after}`),
        ...reals.filter((one) => !isDelete(one)).map((one) => `${isAdd(one) ? "-a" : "-e"} ${one.key} -m ${one.after}`),
        // Deleting a virtual server also deletes its real servers.
        ...reals.filter((one) => isDelete(one) && !isDeletedWithServer(one)).map((one) => `-d ${one.key}`),
      ],
    },
    { command: ipset, lines: beginning.map(guard("del")) },
    { command: ip, lines: addresses.toSorted(deletesFirst).map((change) => addressLine(change, names, family)) },
    { command: ipvsadm, lines: [...deletedServers].map((key) => `-D ${key}`) },
    {
      command: ipset,
      lines: [...sets.filter(isDelete).map(setLine), ...ending.map(guard("del"))],
    },
  ];
  return batches.filter(({ lines }) => lines.length > 0);
}

function isAdd({ before }: ObjectChange): boolean {
  return before === undefined;
}

function isDelete({ after }: ObjectChange): boolean {
  return after === undefined;
}

function deletesFirst(a: ObjectChange, b: ObjectChange): number {
  return Number(isDelete(b)) - Number(isDelete(a));
}

/**
 * Returns the `ip -batch` line for an address. Programs on the node should not choose it as a source address, so it
 * gets scope host (IPv4) or is deprecated (IPv6).
 */
function addressLine({ key, after }: ObjectChange, { interfaceName }: ObjectNames, family: Family): string {
  const place = `${key}/${family === "v4" ? 32 : 128} dev ${interfaceName}`;
  if (after === undefined) return `address delete ${place}`;
  return `address add ${place} ${family === "v4" ? "scope host" : "nodad preferred_lft 0"}`;
}

/** Returns batches as text for `--dry-run` and inspection. */
export function formatBatches(batches: readonly Batch[]): string {
  return batches.map(({ command, lines }) => `# ${command.join(" ")}\n${lines.join("\n")}\n`).join("");
}

/** Ipsets whose elements make the rules pass packets for a frontend to IPVS. */
const passing: readonly ObjectKind[] = ["SERVERS", "POD-MARKS", "NODE-MARKS"];

/**
 * Returns the frontends that are created or deleted at addresses that are on our interface both before and after the
 * changes. *Shape:* `10.96.0.1,tcp:80`. O(changes).
 *
 * `makeBatches` puts them into the ipset REFUSED while the other ipsets and IPVS disagree. Otherwise packets would
 * reach the node's own port: the ipset SERVERS also records which virtual servers are ours, so it lets packets pass
 * before the virtual server exists and after it is deleted. If a run ends or fails in the meantime, the next successful
 * sync removes the element. The node's other addresses need no guard: they are not in ADDRESSES, so packets to a port
 * without a frontend reach the node's own port anyway.
 */
function guardedElements(
  changes: readonly ObjectChange[],
  installed: InstalledObjects,
): Readonly<Record<"beginning" | "ending", readonly string[]>> {
  const isThere = (kind: ObjectKind, key: string): boolean => installed.get(kind)?.has(key) === true;
  const changed = new Map(changes.map((change) => [`${change.kind} ${change.key}`, change]));
  const isLater = (kind: ObjectKind, key: string): boolean => {
    const change = changed.get(`${kind} ${key}`);
    return change === undefined ? isThere(kind, key) : !isDelete(change);
  };
  const elements = new Set(changes.flatMap(({ kind, key }) => (passing.includes(kind) ? [key] : [])));
  const guarded = [...elements].filter((element) => {
    const address = element.slice(0, element.indexOf(","));
    const stays = isThere("address", address) && isLater("address", address);
    return stays && !isThere("REFUSED", element) && !isLater("REFUSED", element);
  });
  const passesNow = (element: string): boolean => passing.some((kind) => isThere(kind, element));
  const passesLater = (element: string): boolean => passing.some((kind) => isLater(kind, element));
  return {
    beginning: guarded.filter((element) => !passesNow(element) && passesLater(element)),
    ending: guarded.filter((element) => passesNow(element) && !passesLater(element)),
  };
}
