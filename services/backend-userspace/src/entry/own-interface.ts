import { readFileSync } from "node:fs";
import type { Family } from "@kpng/model/address.ts";
import { runTool } from "./run-tool.ts";

/** Kinds of interface to try, in this order: not every kernel has "dummy". */
const kinds = ["dummy", "bridge"] as const;

/**
 * The interface that has the addresses of Services, for `AddressEntry`: a dummy device, where the kernel has none a
 * bridge without ports, and otherwise `lo`. Both families share it.
 *
 * Addresses that the node has anyway, e.g. an external IP that is an address of `eth0`, are left alone. On `lo`, these
 * are also the addresses that a killed run left behind.
 */
export class OwnInterface {
  readonly name: string;
  readonly kind: "dummy" | "bridge" | "loopback";
  readonly #own = new Set<string>();
  #users = 0;

  private constructor(name: string, kind: OwnInterface["kind"]) {
    this.name = name;
    this.kind = kind;
  }

  /**
   * Creates the interface; one of an earlier run is deleted first. Errors: ENTRY_FAILED if this process may not
   * configure interfaces.
   */
  static async open(name: string): Promise<OwnInterface> {
    await OwnInterface.delete(name);
    for (const kind of kinds) {
      try {
        await runTool(["ip", "link", "add", name, "type", kind]);
      } catch {
        continue;
      }
      await runTool(["ip", "link", "set", name, "up"]);
      return new OwnInterface(name, kind);
    }
    // Fails without the right to configure interfaces.
    await runTool(["ip", "link", "set", "lo", "up"]);
    return new OwnInterface("lo", "loopback");
  }

  /** Deletes an interface of this name, which an earlier run left behind; without effect if there is none. */
  static async delete(name: string): Promise<void> {
    const isThere = await runTool(["ip", "link", "show", name]).then(
      () => true,
      () => false,
    );
    if (isThere) await runTool(["ip", "link", "delete", name]);
  }

  has(address: string): boolean {
    return this.#own.has(address);
  }

  /** Another family uses it. */
  share(): this {
    this.#users++;
    return this;
  }

  /** Adds addresses, except those that another interface has. */
  async add(addresses: readonly string[], localAddresses: readonly string[]): Promise<void> {
    const local = new Set(localAddresses);
    const own = addresses.filter((address) => this.#own.has(address) || !local.has(address));
    if (own.length === 0) return;
    await this.#change("replace", own);
    for (const address of own) this.#own.add(address);
  }

  async remove(addresses: readonly string[]): Promise<void> {
    const own = addresses.filter((address) => this.#own.has(address));
    if (own.length === 0) return;
    for (const address of own) this.#own.delete(address);
    await this.#change("delete", own);
  }

  /** Returns the addresses of ours that the interface has lost. */
  async missing(family: Family, addresses: readonly string[]): Promise<readonly string[]> {
    const flag = family === "v4" ? "-4" : "-6";
    const text = await runTool(["ip", flag, "-o", "address", "show", "dev", this.name]).catch(() => "");
    const found = new Set([...text.matchAll(/inet6? ([0-9a-f.:]+)\//g)].map(([, address]) => address));
    return addresses.filter((address) => this.#own.has(address) && !found.has(address));
  }

  /** Deletes the interface when the last family has closed it. */
  async close(): Promise<void> {
    if (--this.#users > 0) return;
    if (this.kind === "loopback") await this.remove([...this.#own]);
    else await runTool(["ip", "link", "delete", this.name]);
  }

  #change(verb: "replace" | "delete", addresses: readonly string[]): Promise<string> {
    const lines = addresses.map((address) =>
      address.includes(":")
        ? `address ${verb} ${address}/128 dev ${this.name}${verb === "replace" ? " nodad" : ""}`
        : `address ${verb} ${address}/32 dev ${this.name}`,
    );
    return runTool(["ip", "-batch", "-"], `${lines.join("\n")}\n`);
  }
}

/**
 * Returns the TCP ports at which programs listen on all addresses, ascending. `/proc/net/tcp` has a line for each
 * socket; state 0A is LISTEN.
 */
export function wildcardPorts(paths: readonly string[] = ["/proc/net/tcp", "/proc/net/tcp6"]): readonly number[] {
  const ports = paths.flatMap((path) => {
    try {
      return [...readFileSync(path, "utf8").matchAll(/: 0+:([0-9A-F]{4}) 0+:0000 0A /g)].map(([, hex = "0"]) =>
        Number.parseInt(hex, 16),
      );
    } catch {
      return [];
    }
  });
  return [...new Set(ports)].sort((one, other) => one - other);
}
