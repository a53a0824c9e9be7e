import { addressAndPort, type Family } from "@kpng/model/address.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { CodedError } from "@kpng/process/process-error.ts";
import type { EndpointAddress, Frontend, NodePlan } from "@kpng/service-plan/service-plan.ts";

/** Error codes of kpng-userspace. `docs/errors.md` explains each. */
type BackendUserspaceErrorCode = "ENTRY_UNAVAILABLE" | "ENTRY_FAILED" | "NOTHING_LISTENS";

/** An error of the userspace backend. */
export class BackendUserspaceError extends CodedError<BackendUserspaceErrorCode> {
  override readonly name = "BackendUserspaceError";
}

/** The properties of a frontend that an entry needs. */
export interface EntryFrontend {
  /** Unique within a family. *Shape:* `TCP 10.96.0.1 80`, or `TCP * 30080` for a node port. */
  readonly id: string;
  /** Name of the service port. */
  readonly name: string;
  readonly frontend: Frontend;
  /** Whether this is the first frontend of its service port. */
  readonly isFirst: boolean;
}

/** Ports to try, in this order. Either an array, or a range whose ports are computed on demand (`localPorts`). */
interface PortList extends Iterable<number> {
  includes(port: number): boolean;
}

/** An address to listen at, and the ports to try. */
export interface Place {
  /** Undefined if the node has no address to listen at. */
  readonly address: string | undefined;
  readonly ports: PortList;
}

/** What happens to packets for a frontend: they are sent to its listener, refused, dropped, or left alone. */
export type EntryState =
  | { readonly kind: "open"; readonly at: EndpointAddress }
  | { readonly kind: "refuse" }
  | { readonly kind: "drop" }
  | { readonly kind: "none" };

/** A frontend whose state has changed. */
export interface EntryChange {
  readonly at: EntryFrontend;
  readonly state: EntryState;
}

/** What an entry must know about the node. */
export interface EntryNode {
  readonly plan: NodePlan;
  /** Addresses of the node's interfaces in this family. */
  readonly localAddresses: readonly string[];
}

/**
 * How packets to Services reach the listeners of this process, in one family: either packets are redirected
 * ({@link RedirectEntry}), or clients are told the local ports ({@link MapEntry}). Each sync calls `useNode`, opens
 * listeners at the places that `placeOf` returns, calls `publish`, and closes old listeners. Calls do not overlap.
 */
export interface Entry {
  readonly family: Family;
  /** Sets the state of the node. Returns whether the places of known frontends may have changed. Default: never. */
  useNode?(node: EntryNode): boolean;
  /** Returns the place to listen at for a frontend; undefined if this entry does not serve it. */
  placeOf(at: EntryFrontend): Place | undefined;
  /** Puts changes into effect. If it rejects, the next call puts all of them into effect. */
  publish(changes: readonly EntryChange[]): Promise<void>;
  /**
   * Returns whether packets that this process sends to an address and port would reach one of its own listeners. False
   * for a listener's own address and port, which `UserspaceRuntime` checks. Default: never.
   */
  captures?(protocol: Protocol, to: EndpointAddress): boolean;
  /** Compares what is installed with what was published, and repairs it. Returns a line for each difference. */
  repair?(): Promise<readonly string[]>;
  /** Removes everything that this entry installed. */
  close?(): Promise<void>;
}

/** First and last number of a range of ports. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** Local ports of this backend, one for each frontend of a protocol and family. Node ports begin at 30 000. */
export const localPortRange: PortRange = { first: 20_000, last: 29_999 };

/**
 * Returns the local ports to try for a listener. The first one is derived from the listener's name, so that it is
 * usually the same after a restart; all other ports in the range follow. Pure.
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

interface MapEntryOptions {
  readonly family: Family;
  /** Address to listen at, of this family. */
  readonly address: string;
  readonly ports: PortRange;
  /** Receives a line for each change to the mapping. */
  readonly print: (line: string) => void;
}

/**
 * The entry that needs no privileges: each service port has a local port at one address, and the mapping is printed. It
 * works like a port-forward to all Services together, e.g. on a developer's machine. Only the first frontend of a service
 * port is mapped, normally a cluster IP: the others lead to the same endpoints or, with external policy Local, to some of
 * them.
 *
 * *Shape of a line:* `default/web:http TCP 10.96.0.1:80 -> 127.0.0.1:20173`.
 */
export class MapEntry implements Entry {
  readonly #options: MapEntryOptions;
  readonly #printed = new Map<string, string>();

  constructor(options: MapEntryOptions) {
    this.#options = options;
  }

  get family(): Family {
    return this.#options.family;
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
}
