import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { CodedError } from "@kpng/process/process-error.ts";
import type { EndpointAddress, Frontend, NodePlan } from "@kpng/service-plan/service-plan.ts";

/** Codes of errors of kpng-userspace. `docs/errors.md` explains each. */
type BackendUserspaceErrorCode = "ENTRY_UNAVAILABLE" | "ENTRY_FAILED" | "NOTHING_LISTENS";

/** An error of the userspace backend. */
export class BackendUserspaceError extends CodedError<BackendUserspaceErrorCode> {
  override readonly name = "BackendUserspaceError";
}

/** A frontend of a Service, as an entry sees it. */
export interface EntryFrontend {
  /** Unique within a family. *Shape:* `TCP 10.96.0.1 80`, or `TCP * 30080` for a node port. */
  readonly id: string;
  /** Name of the service port. */
  readonly name: string;
  readonly frontend: Frontend;
  /** Whether it is the first frontend of its service port. */
  readonly isFirst: boolean;
}

/** Ports to try, in this order. An array, or a range that is not spelled out (`localPorts`). */
interface PortList extends Iterable<number> {
  includes(port: number): boolean;
}

/** An address to listen at, and the ports to try. */
export interface Place {
  readonly address: string;
  readonly ports: PortList;
}

/** State of a frontend for packets: given to its listener, refused, dropped, or left alone. */
export type EntryState =
  | { readonly kind: "open"; readonly at: EndpointAddress }
  | { readonly kind: "refuse" }
  | { readonly kind: "drop" }
  | { readonly kind: "none" };

/** A frontend whose state changed. */
export interface EntryChange {
  readonly at: EntryFrontend;
  readonly state: EntryState;
}

/** The addresses of the node, and the plan's settings for it. */
export interface EntryNode {
  readonly plan: NodePlan;
  /** Addresses of the interfaces, in the family. */
  readonly localAddresses: readonly string[];
}

/**
 * How packets to Services reach the listeners of this process, in one family: by redirection ({@link RedirectEntry}) or
 * because clients are told the local ports ({@link MapEntry}). Each sync calls `useNode`, listens at `placeOf`, calls
 * `publish`, and closes old listeners. Calls do not overlap.
 */
export interface Entry {
  readonly family: Family;
  readonly kind: "redirect" | "map";
  /** Takes the state of the node; returns whether places of known frontends may differ now. */
  useNode(node: EntryNode): boolean;
  /** The place to listen at for a frontend; undefined if this entry does not serve it. */
  placeOf(at: EntryFrontend): Place | undefined;
  /** Puts changes into effect. Rejects if nothing was changed. */
  publish(changes: readonly EntryChange[]): Promise<void>;
  /**
   * Whether packets that this process sends to an address and port are led to one of its listeners. False for a
   * listener's own address and port: `UserspaceRuntime` knows those.
   */
  captures(protocol: Protocol, to: EndpointAddress): boolean;
  /** Compares what is installed with what was published, and repairs it. Returns a line for each difference. */
  repair(): Promise<readonly string[]>;
  /** Removes what was installed. */
  close(): Promise<void>;
}

/** A range of port numbers, first and last included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Returns the local ports to try for a listener: the first follows from its name, so that it is usually the same after
 * a restart, and all others of the range come after it. Pure.
 */
export function localPorts(name: string, { first, last }: PortRange): PortList {
  const size = last - first + 1;
  // FNV-1a
  let hash = 0x811c9dc5;
  for (const letter of name) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x01000193) >>> 0;
  return {
    includes: (port) => port >= first && port <= last,
    *[Symbol.iterator]() {
      for (let step = 0; step < size; step++) yield first + ((hash + step) % size);
    },
  };
}

/** Parses a range. *Shape:* `20000-29999`. Returns undefined for any other text. */
export function parsePortRange(text: string): PortRange | undefined {
  const [, first, last] = /^(\d{1,5})-(\d{1,5})$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  return range.first >= 1 && range.first <= range.last && range.last <= 65_535 ? range : undefined;
}

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
