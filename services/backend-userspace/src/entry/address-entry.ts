import type { Family } from "@kpng/model/address.ts";
import type { Frontend } from "@kpng/service-plan/service-plan.ts";
import type { Entry, EntryFrontend, EntryNode, Place } from "./entry.ts";
import { nodePortPlaces } from "./node-port-places.ts";
import type { OwnInterface } from "./own-interface.ts";

/**
 * The entry by addresses: the addresses of Services become addresses of an interface of this process, and listeners
 * listen at them directly. Needs no packet filter. `chooseEntries` makes one for each family, and `UserspaceRuleSet`
 * calls it. Each kind of entry is a file of its own; see `Entry`.
 *
 * External and load-balancer IPs are served only on request (`--address-external-ips`): the author of a Service chooses
 * them freely, and packets to an address of this node no longer leave it, e.g. for the API server. Cluster IPs are from
 * a range of the cluster.
 *
 * A program of the host that listens at the same port of all addresses prevents a listener; if it listens at other
 * ports, it can be reached through the addresses of Services, and without a packet filter nothing can prevent that.
 */
export class AddressEntry implements Entry {
  readonly kind = "address";
  readonly family: Family;
  readonly #device: OwnInterface;
  readonly #hasExternalIPs: boolean;
  /** Ids of the frontends at each address, while they exist or have connections. */
  readonly #users = new Map<string, Set<string>>();
  #node: EntryNode | undefined;
  #nodePortAddresses: readonly string[] = [];

  constructor(family: Family, device: OwnInterface, hasExternalIPs: boolean) {
    this.family = family;
    this.#device = device;
    this.#hasExternalIPs = hasExternalIPs;
  }

  useNode(node: EntryNode): boolean {
    this.#node = node;
    const before = this.#nodePortAddresses;
    this.#nodePortAddresses = nodePortPlaces(node, (address) => this.#device.has(address));
    return before.join() !== this.#nodePortAddresses.join();
  }

  async prepare(frontends: readonly EntryFrontend[]): Promise<void> {
    const used = new Set<string>();
    for (const { id, frontend } of frontends) {
      if (frontend.address === undefined || !this.#isServed(frontend)) continue;
      used.add(frontend.address);
      this.#users.set(frontend.address, (this.#users.get(frontend.address) ?? new Set()).add(id));
    }
    const missing = [...used].filter((address) => !this.#device.has(address));
    await this.#device.add(missing, this.#node?.localAddresses ?? []);
  }

  placesOf({ frontend }: EntryFrontend): readonly Place[] {
    if (!this.#isServed(frontend)) return [];
    const ports = [frontend.port];
    const addresses = frontend.address === undefined ? this.#nodePortAddresses : [frontend.address];
    return addresses.map((address) => ({ address, ports }));
  }

  async publish(): Promise<void> {}

  captures(): boolean {
    return false;
  }

  async release({ id, frontend }: EntryFrontend): Promise<void> {
    const { address } = frontend;
    const users = address === undefined ? undefined : this.#users.get(address);
    if (address === undefined || users?.delete(id) !== true || users.size > 0) return;
    this.#users.delete(address);
    await this.#device.remove([address]);
  }

  async repair(): Promise<readonly string[]> {
    const missing = await this.#device.missing([...this.#users.keys()]);
    await this.#device.add(missing, this.#node?.localAddresses ?? []);
    return missing.map((address) => `address ${address} was missing on ${this.#device.name}`);
  }

  close(): Promise<void> {
    return this.#device.close();
  }

  #isServed({ kind }: Frontend): boolean {
    return this.#hasExternalIPs || kind === "clusterIP" || kind === "nodePort";
  }
}
