import { readFileSync } from "node:fs";
import { runTool } from "./run-tool.ts";

/** Kinds of interface to try, in this order: not every kernel has "dummy". */
const kinds = ["dummy", "bridge"] as const;

/**
 * The interface that has the addresses of Services, for `AddressEntry`. It is a dummy device; without dummy devices in
 * the kernel, a bridge without ports; without bridges, `lo`. `chooseEntries` opens it. Separate from `AddressEntry`,
 * because the entries of both families share one interface.
 *
 * Addresses that the node has anyway, e.g. an external IP that is an address of `eth0`, are left alone. So are, on
 * `lo`, the addresses that a killed run left behind.
 */
export class OwnInterface {
  readonly name: string;
  readonly kind: "dummy" | "bridge" | "loopback";
  readonly #own = new Set<string>();
  readonly #onChange: () => void;
  #users = 0;

  private constructor(name: string, kind: OwnInterface["kind"], onChange: () => void) {
    this.name = name;
    this.kind = kind;
    this.#onChange = onChange;
  }

  /**
   * Creates the interface. One of an earlier run is deleted first.
   * `onChange` is called whenever addresses were added or removed, also if that failed: some of them may have changed.
   * Errors: ENTRY_FAILED if this process may not configure interfaces.
   */
  static async open(name: string, onChange: () => void = () => undefined): Promise<OwnInterface> {
    await OwnInterface.delete(name);
    for (const kind of kinds) {
      try {
        await runTool(["ip", "link", "add", name, "type", kind]);
      } catch {
        continue;
      }
      await runTool(["ip", "link", "set", name, "up"]);
      return new OwnInterface(name, kind, onChange);
    }
    // Fails without the right to configure interfaces.
    await runTool(["ip", "link", "set", "lo", "up"]);
    return new OwnInterface("lo", "loopback", onChange);
  }

  /** Deletes an interface of this name, which an earlier run left behind; without effect if there is none. */
  static async delete(name: string): Promise<void> {
    if (await isThere(name)) await runTool(["ip", "link", "delete", name]);
  }

  has(address: string): boolean {
    return this.#own.has(address);
  }

  /** Returns this interface for one more family; it is deleted when all of them have closed it. */
  share(): this {
    this.#users++;
    return this;
  }

  /**
   * Adds addresses, except those that another interface has. If another program has deleted the interface, it is
   * created again with all its addresses.
   */
  async add(addresses: readonly string[], localAddresses: readonly string[]): Promise<void> {
    const local = new Set(localAddresses);
    const own = addresses.filter((address) => this.#own.has(address) || !local.has(address));
    if (own.length === 0) return;
    try {
      await this.#change("replace", own);
    } catch (error) {
      if (this.kind === "loopback" || (await isThere(this.name))) throw error;
      await runTool(["ip", "link", "add", this.name, "type", this.kind]);
      await runTool(["ip", "link", "set", this.name, "up"]);
      await this.#change("replace", [...new Set([...this.#own, ...own])]);
    }
    for (const address of own) this.#own.add(address);
  }

  /** Removes addresses; those that another program has removed already do not matter. */
  async remove(addresses: readonly string[]): Promise<void> {
    const own = addresses.filter((address) => this.#own.has(address));
    if (own.length === 0) return;
    for (const address of own) this.#own.delete(address);
    try {
      await this.#change("delete", own);
    } catch (error) {
      const installed = await this.#installed();
      if (own.some((address) => installed.has(address))) throw error;
    }
  }

  /** Returns the addresses of ours that the interface has lost. */
  async missing(addresses: readonly string[]): Promise<readonly string[]> {
    const installed = await this.#installed();
    return addresses.filter((address) => this.#own.has(address) && !installed.has(address));
  }

  /** Deletes the interface when the last family has closed it. */
  async close(): Promise<void> {
    if (--this.#users > 0) return;
    if (this.kind === "loopback") await this.remove([...this.#own]);
    else await OwnInterface.delete(this.name);
  }

  /** Returns the addresses of the interface; none if it does not exist. */
  async #installed(): Promise<ReadonlySet<string>> {
    const text = await runTool(["ip", "-o", "address", "show", "dev", this.name]).catch(() => "");
    return new Set([...text.matchAll(/inet6? ([0-9a-f.:]+)\//g)].map(([, address = ""]) => address));
  }

  async #change(verb: "replace" | "delete", addresses: readonly string[]): Promise<void> {
    const lines = addresses.map((address) =>
      address.includes(":")
        ? `address ${verb} ${address}/128 dev ${this.name}${verb === "replace" ? " nodad" : ""}`
        : `address ${verb} ${address}/32 dev ${this.name}`,
    );
    // A deletion that fails must not keep the others from being made.
    const force = verb === "delete" ? ["-force"] : [];
    try {
      await runTool(["ip", ...force, "-batch", "-"], `${lines.join("\n")}\n`);
    } finally {
      this.#onChange();
    }
  }
}

function isThere(name: string): Promise<boolean> {
  return runTool(["ip", "link", "show", name]).then(
    () => true,
    () => false,
  );
}

/**
 * Returns the TCP ports at which programs listen on all addresses, ascending. `/proc/net/tcp` has a line for each
 * socket; state 0A is LISTEN.
 */
export function wildcardPorts(): readonly number[] {
  const ports = ["/proc/net/tcp", "/proc/net/tcp6"].flatMap((path) => {
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
