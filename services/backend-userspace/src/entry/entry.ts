import type { Family } from "@kpng/model/address.ts";
import type { Protocol, ServiceKey } from "@kpng/model/service.ts";
import type { EndpointAddress, Frontend, NodePlan } from "@kpng/service-plan/service-plan.ts";

/** A frontend of a Service, as an entry sees it. */
export interface EntryFrontend {
  /** Unique within a family. *Shape:* `TCP 10.96.0.1 80`, or `TCP * 30080` for a node port. */
  readonly id: string;
  readonly service: ServiceKey;
  /** Name of the service port. */
  readonly name: string;
  readonly frontend: Frontend;
  /** Whether it is the first frontend of its service port. */
  readonly isFirst: boolean;
}

/** Ports to try, in this order. An array, or a range that is not spelled out (`localPorts`). */
export interface PortList extends Iterable<number> {
  includes(port: number): boolean;
}

/** An address to listen at, and the ports to try. */
export interface Place {
  readonly address: string;
  readonly ports: PortList;
}

/** State of a frontend for packets: given to listeners, refused, dropped, or left alone. */
export type EntryState =
  | { readonly kind: "open"; readonly places: readonly { readonly address: string; readonly port: number }[] }
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
 * How packets to Services reach the listeners of this process, in one family. `UserspaceRuleSet` calls it in this order
 * for each sync: `useNode`, `prepare`, listen at `placesOf`, `publish`, close other listeners, and `release` when the
 * last connection of a closed listener has ended. Calls do not overlap.
 *
 * Separate from the implementations `RedirectEntry`, `AddressEntry` and `MapEntry`, so that callers do not depend on
 * one.
 */
export interface Entry {
  readonly family: Family;
  readonly kind: "redirect" | "address" | "map";
  /** Takes the state of the node; returns whether places of known frontends may differ now. */
  useNode(node: EntryNode): boolean;
  /** Makes it possible to listen for these frontends. */
  prepare(frontends: readonly EntryFrontend[]): Promise<void>;
  /** Where to listen for a frontend; empty if this entry does not serve it. */
  placesOf(at: EntryFrontend): readonly Place[];
  /** Puts changes into effect. Rejects if nothing was changed. */
  publish(changes: readonly EntryChange[]): Promise<void>;
  /**
   * Whether packets that this process sends to an address and port are led to one of its listeners. False for a
   * listener's own address and port: `UserspaceRuntime` knows those.
   */
  captures(protocol: Protocol, to: EndpointAddress): boolean;
  /** A frontend is gone, and its last connection has ended. */
  release(at: EntryFrontend): Promise<void>;
  /** Compares what is installed with what was published, and repairs it. Returns a line for each difference. */
  repair(): Promise<readonly string[]>;
  /** Removes what was installed. */
  close(): Promise<void>;
}
