import { describeEnd, runProgram } from "@kpng/backend-kit/exec/run-program.ts";
import { type Family, withoutDottedIPv6 } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import {
  type Entry,
  type EntryChange,
  type EntryFrontend,
  type EntryNode,
  localPorts,
  type Place,
  type PortRange,
} from "./entry.ts";
import { type Elements, elementsOf, type FrontendElements, setNames, skeleton, tableOf } from "./redirect-table.ts";
import { BackendUserspaceError } from "./userspace-error.ts";

interface RedirectEntryOptions {
  readonly family: Family;
  /** Name of the nftables table. */
  readonly table: string;
  readonly ports: PortRange;
}

/**
 * The entry by redirection: each frontend has a local port of its own, at one address of the node, and a few nftables
 * rules over one map send packets there. The sender's address stays, so source ranges, affinity and traffic policies
 * see the client.
 *
 * The local address is fixed, so that the kernel recognizes the answers to datagrams. With `redirect` in the rules, the
 * kernel would choose it.
 *
 * `redirect-table.ts` has the rules and elements as text.
 */
export class RedirectEntry implements Entry {
  readonly kind = "redirect";
  readonly #options: RedirectEntryOptions;
  /** By the id of the frontend. */
  readonly #published = new Map<string, FrontendElements>();
  #node: EntryNode | undefined;
  #address: string | undefined;
  /** Chains and rules as nft prints them; undefined while the table may differ. */
  #installedRules: string | undefined;
  #nodePortAddresses: readonly string[] = [];

  constructor(options: RedirectEntryOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  useNode(node: EntryNode): boolean {
    const before = `${this.#address} ${this.#nodePortMode} ${this.#nodePortAddresses}`;
    this.#node = node;
    this.#address = listenAddress(node);
    this.#nodePortAddresses = node.plan.nodePortAddresses === "all" ? [] : nodePortAddresses(node);
    const isChanged = before !== `${this.#address} ${this.#nodePortMode} ${this.#nodePortAddresses}`;
    // The rules for node ports may have to change.
    if (isChanged) this.#installedRules = undefined;
    return isChanged;
  }

  placeOf({ id }: EntryFrontend): Place | undefined {
    const address = this.#address;
    return address === undefined ? undefined : { address, ports: localPorts(id, this.#options.ports) };
  }

  async publish(changes: readonly EntryChange[]): Promise<void> {
    const lines: string[] = [];
    const table = tableOf(this.family, this.#options.table);
    const command = (verb: "add" | "delete", set: keyof Elements, element: string): void => {
      lines.push(`${verb} element ${table} ${setNames[set]} { ${element} }`);
    };
    const next = new Map<string, FrontendElements | undefined>();
    for (const { at, state } of changes) {
      const [before, after] = [this.#published.get(at.id), elementsOf(at, state)];
      if (JSON.stringify(before) === JSON.stringify(after)) continue;
      next.set(at.id, after);
      if (before !== undefined) {
        command("delete", before.set, before.key);
        if (before.localPort !== undefined) command("delete", "localPorts", before.localPort);
      }
    }
    for (const after of next.values()) {
      if (after === undefined) continue;
      command("add", after.set, `${after.key} : ${after.value}`);
      if (after.localPort !== undefined) command("add", "localPorts", after.localPort);
    }
    const isKnown = this.#installedRules !== undefined;
    if (isKnown && lines.length > 0) {
      try {
        await runTool(["nft", "-f", "-"], `${lines.join("\n")}\n`);
      } catch (error) {
        // Another program may have deleted elements: the next attempt replaces the table.
        this.#installedRules = undefined;
        throw error;
      }
    }
    for (const [id, after] of next) {
      if (after === undefined) this.#published.delete(id);
      else this.#published.set(id, after);
    }
    if (!isKnown) await this.#install();
  }

  captures(protocol: Protocol, { address, port }: EndpointAddress): boolean {
    if (this.#published.get(`${protocol} ${address} ${port}`)?.set === "frontends") return true;
    if (this.#published.get(`${protocol} * ${port}`)?.set !== "nodePorts" || this.#node === undefined) return false;
    return nodePortAddresses(this.#node).includes(address);
  }

  async repair(): Promise<readonly string[]> {
    if (this.#node === undefined) return [];
    const installed = await this.#read();
    const wanted = this.#elements();
    const differences = installed.rules === this.#installedRules ? [] : ["chains or rules differ"];
    for (const [field, set] of Object.entries(setNames) as [keyof Elements, string][]) {
      const [expected, found] = [listOf(wanted[field]), installed.elements.get(set) ?? []];
      if (expected.toSorted().join() !== found.toSorted().join()) differences.push(`elements of ${set} differ`);
    }
    if (differences.length > 0) await this.#install();
    return differences;
  }

  async close(): Promise<void> {
    const table = tableOf(this.family, this.#options.table);
    await runTool(["nft", "-f", "-"], `table ${table} {}\ndelete table ${table}\n`);
  }

  get #nodePortMode(): "all" | "listed" {
    return this.#node?.plan.nodePortAddresses === "all" ? "all" : "listed";
  }

  /** Replaces the whole table in one transaction. */
  async #install(): Promise<void> {
    this.#installedRules = undefined;
    const table = tableOf(this.family, this.#options.table);
    const elements = this.#elements();
    const lines = (Object.keys(setNames) as (keyof Elements)[]).flatMap((field) => {
      const list = listOf(elements[field]);
      return list.length === 0 ? [] : [`add element ${table} ${setNames[field]} { ${list.join(", ")} }`];
    });
    const text = `${skeleton(this.family, this.#options.table, this.#nodePortMode)}${lines.join("\n")}\n`;
    await runTool(["nft", "-f", "-"], text);
    this.#installedRules = (await this.#read()).rules;
  }

  #elements(): Elements {
    const maps = {
      frontends: new Map<string, string>(),
      nodePorts: new Map<string, string>(),
      verdicts: new Map<string, string>(),
      nodePortVerdicts: new Map<string, string>(),
      localPorts: new Map<string, string>(),
      nodePortAddresses: new Map(this.#nodePortAddresses.map((address) => [address, ""])),
    };
    for (const { set, key, value, localPort } of this.#published.values()) {
      maps[set].set(key, value);
      if (localPort !== undefined) maps.localPorts.set(localPort, "");
    }
    return maps;
  }

  /** Reads the table: its elements in the form of {@link listOf}, and everything else as text. */
  async #read(): Promise<{ readonly rules: string; readonly elements: ReadonlyMap<string, readonly string[]> }> {
    const table = tableOf(this.family, this.#options.table);
    const elements = new Map<string, readonly string[]>();
    let text: string;
    try {
      text = withoutDottedIPv6(await runTool(["nft", "list", "table", ...table.split(" ")]));
    } catch {
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

/** Returns the addresses at which node ports answer; loopback and link-local ones never do. */
function nodePortAddresses({ plan, localAddresses }: EntryNode): readonly string[] {
  const chosen = plan.nodePortAddresses === "all" ? localAddresses : plan.nodePortAddresses;
  return chosen.filter(isUsable);
}

/** Whether an address is neither loopback nor link-local. */
const isUsable = (address: string): boolean => !/^(127\.|fe80:|::1$)/.test(address);

function listOf(map: ReadonlyMap<string, string>): readonly string[] {
  return [...map].map(([key, value]) => (value === "" ? key : `${key} : ${value}`));
}

/** Returns the address to listen at: the Node's, or else the first that is neither loopback nor link-local. */
function listenAddress({ plan, localAddresses }: EntryNode): string | undefined {
  const usable = localAddresses.filter(isUsable);
  const { nodeAddress } = plan;
  return nodeAddress !== undefined && usable.includes(nodeAddress) ? nodeAddress : usable.toSorted()[0];
}

const timeoutMs = 60_000;

/** Runs `nft` and returns its output. Errors: ENTRY_FAILED with the program's own words. */
export async function runTool(command: readonly string[], stdin = ""): Promise<string> {
  const end = await runProgram(command, { timeoutMs, stdin });
  if (end.kind === "exited" && end.exitCode === 0) return end.stdout;
  const said = end.kind === "not-started" ? "" : `: ${end.stderr.trim().slice(0, 2_000)}`;
  throw new BackendUserspaceError(
    "ENTRY_FAILED",
    `${command.join(" ")} failed (${describeEnd(end, timeoutMs)})${said}`,
  );
}
