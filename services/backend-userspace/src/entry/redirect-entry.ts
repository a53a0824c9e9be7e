import { describeEnd, runProgram, toolEnvironment } from "@kpng/backend-kit/exec/run-program.ts";
import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import { CleanupFailures } from "@kpng/backend-kit/proxy/cleanup-failures.ts";
import { type AddressSet, type Family, families, isLinkLocal, withoutDottedIPv6 } from "@kpng/model/address.ts";
import { hasAddress, type Protocol } from "@kpng/model/service.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { isLoopback } from "@kpng/service-plan/plan-node.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import {
  BackendUserspaceError,
  type Entry,
  type EntryChange,
  type EntryFrontend,
  type EntryNode,
  type EntryState,
  localPortRange,
  localPorts,
  MapEntry,
  type Place,
  type PortRange,
} from "./entry.ts";

/** Names of the maps and sets of the table. */
const setNames = [
  "frontends",
  "nodeports",
  "verdicts",
  "nodeport_verdicts",
  "local_ports",
  "nodeport_addresses",
] as const;

/** An element of a map or set, in nft's notation. */
interface Element {
  readonly set: (typeof setNames)[number];
  readonly key: string;
  /** Undefined in a set. */
  readonly value?: string;
}

const textOf = ({ key, value }: Element): string => (value === undefined ? key : `${key} : ${value}`);

/** Returns the name of a family's table for use in commands. *Shape:* `ip kpng-user`. */
const tableOf = (family: Family, name: string): string => `${family === "v4" ? "ip" : "ip6"} ${name}`;

/**
 * Returns the commands that create the table of one family with its chains but without elements. In the same
 * transaction, they first delete an older table. Pure.
 *
 * - `pre` and `out` come before the redirection, and refuse or drop packets for frontends without an endpoint.
 * - `nat_pre` and `nat_out` redirect packets, using a map from frontends to an address of the node and a local port.
 * - `input` refuses clients that connect to a local port directly.
 */
function skeleton(family: Family, name: string, isAnyNodePortAddress: boolean): string {
  const ip = family === "v4" ? "ip" : "ip6";
  const table = tableOf(family, name);
  const loopback = family === "v4" ? "127.0.0.0/8" : "::1";
  const isNodePortAddress = isAnyNodePortAddress
    ? `fib daddr type local ${ip} daddr != ${loopback}`
    : `${ip} daddr @nodeport_addresses`;
  const key = `${ip} daddr . meta l4proto . th dport`;
  const check = [
    `ct state new ${key} vmap @verdicts`,
    `ct state new ${isNodePortAddress} meta l4proto . th dport vmap @nodeport_verdicts`,
  ];
  const nat = [
    `meta l4proto { tcp, udp } dnat ${ip} addr . port to ${key} map @frontends`,
    `meta l4proto { tcp, udp } ${isNodePortAddress} dnat ${ip} addr . port to meta l4proto . th dport map @nodeports`,
  ];
  const direct = `ct state new ct status & dnat == 0 ${key} @local_ports goto refuse`;
  const chain = (chainName: string, ...lines: readonly string[]): readonly string[] => [
    `  chain ${chainName} {`,
    ...lines.map((line) => `    ${line}`),
    "  }",
  ];
  return [
    `table ${table} {}`,
    `delete table ${table}`,
    `table ${table} {`,
    ...chain("refuse", "meta l4proto tcp reject with tcp reset", "reject"),
    // `typeof`, as older versions of nft crash at sets that newer ones declare by `type`.
    `  map frontends { typeof ${key} : ${ip} daddr . th dport; }`,
    `  map nodeports { typeof meta l4proto . th dport : ${ip} daddr . th dport; }`,
    `  map verdicts { typeof ${key} : verdict; }`,
    "  map nodeport_verdicts { typeof meta l4proto . th dport : verdict; }",
    `  set local_ports { typeof ${key}; }`,
    `  set nodeport_addresses { typeof ${ip} daddr; }`,
    ...chain("pre", "type filter hook prerouting priority -110; policy accept;", ...check),
    ...chain("out", "type filter hook output priority -110; policy accept;", ...check),
    ...chain("nat_pre", "type nat hook prerouting priority -100; policy accept;", ...nat),
    ...chain("nat_out", "type nat hook output priority -100; policy accept;", ...nat),
    ...chain("input", "type filter hook input priority -10; policy accept;", direct),
    "}\n",
  ].join("\n");
}

/** Returns the elements for a frontend in a given state; none if its packets are left alone. Pure. */
function elementsOf({ frontend }: EntryFrontend, state: EntryState): readonly Element[] {
  const { address, protocol, port } = frontend;
  const name = protocol.toLowerCase();
  const isNodePort = address === undefined;
  const key = isNodePort ? `${name} . ${port}` : `${address} . ${name} . ${port}`;
  switch (state.kind) {
    case "none":
      return [];
    case "refuse":
    case "drop": {
      const value = state.kind === "refuse" ? "goto refuse" : "drop";
      return [{ set: isNodePort ? "nodeport_verdicts" : "verdicts", key, value }];
    }
    case "open": {
      const { at } = state;
      return [
        { set: isNodePort ? "nodeports" : "frontends", key, value: `${at.address} . ${at.port}` },
        { set: "local_ports", key: `${at.address} . ${name} . ${at.port}` },
      ];
    }
  }
}

interface RedirectEntryOptions {
  readonly family: Family;
  readonly table: string;
  readonly ports: PortRange;
}

/**
 * The entry that redirects packets: each frontend has its own local port at one address of the node, and a few nftables
 * rules with a map send packets there. The sender's address is not changed, so source ranges, affinity and traffic
 * policies apply to the client's address.
 *
 * The rules name a fixed local address, so that the kernel recognizes the answers to datagrams. With `redirect` in the
 * rules, the kernel would choose the address.
 */
export class RedirectEntry implements Entry {
  readonly #options: RedirectEntryOptions;
  /** The published elements, keyed by frontend id. */
  readonly #published = new Map<string, readonly Element[]>();
  #node: EntryNode | undefined;
  #address: string | undefined;
  /** Chains and rules as nft prints them; undefined if the table may be different. */
  #installedRules: string | undefined;
  #nodePortAddresses: "all" | readonly string[] = [];

  constructor(options: RedirectEntryOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  useNode(node: EntryNode): boolean {
    const before = `${this.#address} ${this.#nodePortAddresses}`;
    this.#node = node;
    this.#address = listenAddress(node);
    this.#nodePortAddresses = node.plan.nodePortAddresses === "all" ? "all" : nodePortAddresses(node);
    const isChanged = before !== `${this.#address} ${this.#nodePortAddresses}`;
    // Replace the table, because the rules for node ports may have to change.
    if (isChanged) this.#installedRules = undefined;
    return isChanged;
  }

  placeOf({ id }: EntryFrontend): Place {
    return { address: this.#address, ports: localPorts(id, this.#options.ports) };
  }

  async publish(changes: readonly EntryChange[]): Promise<void> {
    const [deletions, additions]: [string[], string[]] = [[], []];
    const table = tableOf(this.family, this.#options.table);
    for (const { at, state } of changes) {
      const [before, after] = [this.#published.get(at.id) ?? [], elementsOf(at, state)];
      if (JSON.stringify(before) === JSON.stringify(after)) continue;
      if (after.length === 0) this.#published.delete(at.id);
      else this.#published.set(at.id, after);
      for (const { set, key } of before) deletions.push(`delete element ${table} ${set} { ${key} }\n`);
      for (const element of after) additions.push(`add element ${table} ${element.set} { ${textOf(element)} }\n`);
    }
    // If the table may be different, it is replaced with all published elements.
    if (this.#installedRules === undefined) return await this.#install();
    if (deletions.length + additions.length === 0) return;
    try {
      await runTool(["nft", "-f", "-"], [...deletions, ...additions].join(""));
    } catch (error) {
      // Another program may have deleted elements, so the next attempt replaces the table.
      this.#installedRules = undefined;
      throw error;
    }
  }

  captures(protocol: Protocol, { address, port }: EndpointAddress): boolean {
    const leads = (id: string): boolean => this.#published.get(id)?.some(({ set }) => set === "local_ports") === true;
    if (leads(`${protocol} ${address} ${port}`)) return true;
    if (this.#node === undefined || !leads(`${protocol} * ${port}`)) return false;
    return nodePortAddresses(this.#node).includes(address);
  }

  async repair(): Promise<readonly string[]> {
    if (this.#node === undefined) return [];
    const installed = await this.#read();
    const differences = installed.rules === this.#installedRules ? [] : ["chains or rules differ"];
    for (const set of setNames) {
      const [expected, found] = [this.#elementsOf(set), installed.elements.get(set) ?? []];
      if (expected.toSorted().join() !== found.toSorted().join()) differences.push(`elements of ${set} differ`);
    }
    if (differences.length > 0) await this.#install();
    return differences;
  }

  async close(): Promise<void> {
    await deleteTable(this.family, this.#options.table);
  }

  /** Replaces the whole table in one transaction. */
  async #install(): Promise<void> {
    this.#installedRules = undefined;
    const table = tableOf(this.family, this.#options.table);
    const lines = setNames.flatMap((set) => {
      const list = this.#elementsOf(set);
      return list.length === 0 ? [] : [`add element ${table} ${set} { ${list.join(", ")} }`];
    });
    const rules = skeleton(this.family, this.#options.table, this.#nodePortAddresses === "all");
    const text = `${rules}${lines.join("\n")}\n`;
    await runTool(["nft", "-f", "-"], text);
    this.#installedRules = (await this.#read()).rules;
  }

  /** Returns the published elements of a set. */
  #elementsOf(name: Element["set"]): readonly string[] {
    if (name === "nodeport_addresses") return this.#nodePortAddresses === "all" ? [] : this.#nodePortAddresses;
    const elements = [...this.#published.values()].flat();
    return elements.filter(({ set }) => set === name).map(textOf);
  }

  /** Reads the table. Returns its elements in the form of {@link textOf}, and everything else as text. */
  async #read(): Promise<{ readonly rules: string; readonly elements: ReadonlyMap<string, readonly string[]> }> {
    const table = tableOf(this.family, this.#options.table);
    const elements = new Map<string, readonly string[]>();
    let text: string;
    try {
      text = withoutDottedIPv6(await runTool(["nft", "list", "table", ...table.split(" ")]));
    } catch {
      // A table that cannot be read counts as missing. It is then installed again, and a failure is reported there.
      return { rules: "", elements };
    }
    const rules = text.replaceAll(/(?:map|set) (\S+) \{[^{}]*?(elements = \{[^}]*\})?\s*\}/g, (whole, set, list) => {
      if (typeof list !== "string") return whole;
      const parts = list.slice(list.indexOf("{") + 1, -1).split(",");
      elements.set(
        set,
        parts.map((part) => part.trim().replaceAll(/\s+/g, " ")),
      );
      return whole.replace(list, "");
    });
    return { rules: rules.replaceAll(/\s+/g, " "), elements };
  }
}

/** Returns the addresses at which node ports answer. (With "all", the rules match link-local addresses, too.) */
function nodePortAddresses({ plan, localAddresses }: EntryNode): readonly string[] {
  const chosen = plan.nodePortAddresses === "all" ? localAddresses : plan.nodePortAddresses;
  return chosen.filter(isUsable);
}

/** Whether Services can be served at an address of this node. */
export const isUsable = (address: string): boolean => !isLoopback(address) && !isLinkLocal(address);

/**
 * Returns the address to listen at: the address of the Node object if an interface has it, otherwise the first address
 * that is neither loopback nor link-local.
 */
function listenAddress({ plan, localAddresses }: EntryNode): string | undefined {
  const usable = localAddresses.filter(isUsable);
  const { nodeAddress } = plan;
  return nodeAddress !== undefined && usable.includes(nodeAddress) ? nodeAddress : usable.toSorted()[0];
}

const timeoutMs = 60_000;

/** Runs `nft` and returns its output. Errors: ENTRY_FAILED with the program's error message. */
export async function runTool(command: readonly string[], stdin = ""): Promise<string> {
  const end = await runProgram(command, { timeoutMs, stdin, env: toolEnvironment() });
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  const said = end.kind === "not-started" ? "" : `: ${end.stderr.trim().slice(0, 2_000)}`;
  const text = `${command.join(" ")} failed (${describeEnd(end, timeoutMs)})${said}`;
  throw new BackendUserspaceError("ENTRY_FAILED", text);
}

interface EntryOptions {
  /** Addresses for `MapEntry`, at most one of each family; none if packets are to be redirected. */
  readonly mapAddresses: AddressSet;
  /** Name of the nftables table. */
  readonly tableName: string;
  readonly print: (line: string) => void;
}

/**
 * Returns an entry for each family, IPv4 first. Errors: ENTRY_UNAVAILABLE if packets are to be redirected but this
 * process may not change nftables.
 */
export async function openEntries({ tableName, mapAddresses, print }: EntryOptions) {
  const ports = localPortRange;
  if (hasAddress(mapAddresses)) {
    return families.flatMap((family) =>
      mapAddresses[family].map((address): Entry => new MapEntry({ family, address, ports, print })),
    );
  }
  try {
    // `--check` needs the same privileges as a transaction, but commits nothing.
    await runTool(["nft", "--check", "-f", "-"], `table ip ${tableName} {}\n`);
  } catch (cause) {
    const text = `packets cannot be redirected: ${reasonOf(cause)}. With --map 127.0.0.1, Services get local ports`;
    throw new BackendUserspaceError("ENTRY_UNAVAILABLE", text, { cause });
  }
  return nodeFamilies().map((family): Entry => new RedirectEntry({ family, table: tableName, ports }));
}

/** Deletes the table of a family, if it exists. Errors: ENTRY_FAILED. */
async function deleteTable(family: Family, name: string): Promise<void> {
  const table = tableOf(family, name);
  await runTool(["nft", "-f", "-"], `table ${table} {}\ndelete table ${table}\n`);
}

/** Removes what a killed run left on the node. Errors: ENTRY_FAILED, thrown after every family has been tried. */
export async function removeTables(tableName: string, log: Log): Promise<void> {
  const failures = new CleanupFailures(log);
  for (const family of nodeFamilies()) await failures.attempt(() => deleteTable(family, tableName));
  failures.end();
}
