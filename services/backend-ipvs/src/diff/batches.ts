import type { Family } from "@kpng/model/address.ts";
import { type ObjectNames, type SetRole, setName } from "../render/object-names.ts";
import type { InstalledObjects, ObjectChange } from "./diff-objects.ts";
import { guardedElements, servedElements } from "./guarded-elements.ts";

/** Input of one run of a tool. */
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
 * Returns the runs of tools that make changes, in their order. A new address is added after its virtual servers have
 * their real servers, and deleted before them. Until then, packets go where they went before. While a frontend begins
 * or ends at an address that stays, it is refused; see `guardedElements`. Elements of REFUSED that IPVS serves already
 * are deleted first; see `servedElements`. Pure.
 *
 * `IpvsRuleSet` runs the batches, or prints them. Separate from `diffObjects`, which knows neither tools nor an order.
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
  const served = servedElements(changes, installed, family);
  const isServed = ({ kind, key }: ObjectChange): boolean => kind === "REFUSED" && served.has(key);
  const deletedElements = sets.filter(isDelete);
  const guard = (verb: "add" | "del") => (element: string) => `${verb} ${setName(names, family, "REFUSED")} ${element}`;
  const batches: readonly Batch[] = [
    {
      command: ipset,
      lines: [
        ...[...beginning, ...ending].map(guard("add")),
        ...sets.filter((change) => !isDelete(change)).map(setLine),
        ...deletedElements.filter(isServed).map(setLine),
      ],
    },
    {
      command: ipvsadm,
      lines: [
        ...servers.filter((one) => !isDelete(one)).map((one) => `${isAdd(one) ? "-A" : "-E"} ${one.key} ${one.after}`),
        ...reals.filter((one) => !isDelete(one)).map((one) => `${isAdd(one) ? "-a" : "-e"} ${one.key} -m ${one.after}`),
        // A virtual server is deleted with its real servers.
        ...reals.filter((one) => isDelete(one) && !isDeletedWithServer(one)).map((one) => `-d ${one.key}`),
      ],
    },
    { command: ipset, lines: beginning.map(guard("del")) },
    { command: ip, lines: addresses.toSorted(deletesFirst).map((change) => addressLine(change, names, family)) },
    { command: ipvsadm, lines: [...deletedServers].map((key) => `-D ${key}`) },
    {
      command: ipset,
      lines: [...deletedElements.filter((change) => !isServed(change)).map(setLine), ...ending.map(guard("del"))],
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
 * Returns the line of `ip -batch` for an address. Programs should not choose it as a source of their own: scope host
 * for IPv4, deprecated for IPv6.
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
