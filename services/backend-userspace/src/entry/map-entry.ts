import { addressAndPort, type Family } from "@kpng/model/address.ts";
import { type Entry, type EntryChange, type EntryFrontend, localPorts, type Place, type PortRange } from "./entry.ts";

interface MapEntryOptions {
  readonly family: Family;
  /** Where to listen; of the family. */
  readonly address: string;
  readonly ports: PortRange;
  /** Receives a line for each change of the mapping. */
  readonly print: (line: string) => void;
}

/**
 * The entry that needs no rights: each service port has a local port at one address, and the mapping is printed. It is
 * a port-forward to all Services at once, e.g. for a developer's machine. Several frontends of a service port lead to
 * the same endpoints, so only the first is mapped.
 *
 * *Shape of a line:* `default/web:http TCP 10.96.0.1:80 -> 127.0.0.1:20173`.
 */
export class MapEntry implements Entry {
  readonly kind = "map";
  readonly #options: MapEntryOptions;
  readonly #printed = new Map<string, string>();

  constructor(options: MapEntryOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
  }

  useNode(): boolean {
    return false;
  }

  placeOf({ isFirst, name, frontend }: EntryFrontend): Place | undefined {
    const { address, ports } = this.#options;
    return isFirst ? { address, ports: localPorts(`${name} ${frontend.protocol}`, ports) } : undefined;
  }

  async publish(changes: readonly EntryChange[]): Promise<void> {
    for (const { at, state } of changes) {
      const { id, name, isFirst, frontend } = at;
      const unserved = state.kind === "refuse" && isFirst ? "no endpoint" : "not served";
      const text = state.kind === "open" ? addressAndPort(state.at.address, state.at.port) : unserved;
      if ((this.#printed.get(id) ?? "not served") === text) continue;
      if (text === "not served") this.#printed.delete(id);
      else this.#printed.set(id, text);
      const from = addressAndPort(frontend.address ?? "*", frontend.port);
      this.#options.print(`${name} ${frontend.protocol} ${from} -> ${text}\n`);
    }
  }

  captures(): boolean {
    return false;
  }

  async repair(): Promise<readonly string[]> {
    return [];
  }

  async close(): Promise<void> {}
}
