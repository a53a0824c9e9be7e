import { isIn } from "@kpng/model/address.ts";
import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import type { Protocol } from "@kpng/model/service.ts";
import { frontendId } from "@kpng/service-plan/frontend-claims.ts";
import { isLoopback, planNode } from "@kpng/service-plan/plan-node.ts";
import { servesNodePorts } from "@kpng/service-plan/plan-service.ts";
import {
  type FirstPacket,
  indexPlans,
  outcomes,
  type PacketOutcome,
  type PlannedNode,
  senderOf,
} from "@kpng/service-plan/testing/outcomes.ts";
import { packetsTo } from "@kpng/service-plan/testing/random-packets.ts";
import { onRandomStates, plansOf } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { addressBytes, packed, portBytes, protocolBytes, type SharedSet, unpackSet } from "../layout/elements.ts";
import { formatElement } from "../layout/format-element.ts";
import { stickyKey } from "./endpoint-sets.ts";
import { ServiceElements } from "./service-elements.ts";

/**
 * Follows packets through the elements of a table as the rules of `render/skeleton.ts` do. What these rules do in a
 * kernel is tested with packets (test/kernel); here many more states are possible.
 */
class TableWalk {
  readonly #elements: ServiceElements;
  readonly #planned: PlannedNode;

  constructor(elements: ServiceElements, planned: PlannedNode) {
    this.#elements = elements;
    this.#planned = planned;
  }

  outcomes(packet: FirstPacket): readonly PacketOutcome[] {
    const { destination, port, source, inInterface } = packet;
    const { node } = this.#planned;
    const portKey = protocolBytes(packet.protocol.toUpperCase() as Protocol) + portBytes(port);
    const key = addressBytes(destination) + portKey;
    const ranges = this.#value("firewall", key);
    if (ranges !== undefined && !this.#isInRanges(ranges, source)) return [{ kind: "dropped" }];
    const [isToNode, isNodePort] = [this.#isLocal(destination), this.#servesNodePorts(destination)];
    const reached =
      this.#balance(packet, "frontends", key) ?? (isNodePort ? this.#balance(packet, "nodeports", portKey) : undefined);
    if (reached !== undefined) return reached;
    if (isToNode && isNodePort && this.#has("refused_nodeports", portKey)) return [{ kind: "refused" }];
    if (isToNode && isNodePort && this.#has("dropped_nodeports", portKey)) return [{ kind: "dropped" }];
    if (this.#has("refused", key)) return [{ kind: "refused" }];
    if (this.#has("dropped", key)) return [{ kind: "dropped" }];
    // These rules are not in the input chain.
    if (isToNode && inInterface !== undefined) return [{ kind: "untouched" }];
    if (this.#has("cluster_ips", addressBytes(destination))) return [{ kind: "refused" }];
    return [{ kind: node.serviceCIDRs.some((cidr) => isIn(destination, cidr)) ? "dropped" : "untouched" }];
  }

  /** The chains balance_… and local_…; undefined if no rule changes the destination. */
  #balance(packet: FirstPacket, map: "frontends" | "nodeports", key: string): readonly PacketOutcome[] | undefined {
    const value = this.#value(map, key);
    if (value === undefined) return undefined;
    const { kind } = unpackSet(readNumber(value));
    const isPod = senderOf(packet, this.#planned) === "pod";
    if (kind !== "local") {
      const isMarked = kind === "masquerade" || (kind === "masqueradeUnlessPod" && !isPod);
      return this.#pick(packet, value, isMarked);
    }
    if (isPod) return this.#pick(packet, value, false);
    if (this.#isLocal(packet.source)) return this.#pick(packet, value, true);
    const local = this.#value(`local_${map}`, key);
    return local === undefined ? undefined : this.#pick(packet, local, false);
  }

  /** The chains pick_N, sticky_… and sticky_pick_N, and the rules of postrouting. */
  #pick({ source, inInterface }: FirstPacket, value: string, isMarked: boolean): readonly PacketOutcome[] {
    const { id, count } = unpackSet(readNumber(value));
    const at = numberBytes(id * packed.firstId);
    const chain = this.#value("sticky_sets", at) ?? "";
    const size = count > 0 ? count : Number(/^sticky_pick_(\d+)$/.exec(this.#value("sticky_counts", at) ?? "")?.[1]);
    const seconds = Number(/timeout (\d+)s/.exec(this.#elements.chains.get(chain)?.rules.join() ?? "")?.[1]);
    return Array.from({ length: size }, (_, slot) => {
      const key = at + numberBytes(slot);
      const endpoint =
        count > 0
          ? this.#value("slots", key)
          : this.#value("sticky_addresses", stickyKey(this.#value("sticky_slots", key) ?? ""));
      return endpoint ?? expect.fail(`no endpoint in slot ${slot} of set ${id}`);
    }).flatMap((endpoint) => {
      const bytes = endpoint.slice(0, -4);
      const isHairpin = bytes === addressBytes(source) && this.#has("hairpin", bytes + bytes);
      const text = formatElement(this.#planned.node.family, "cluster_ips", bytes, undefined);
      const address = text.slice("cluster_ips { ".length, -" }".length);
      const isDelivered = inInterface !== undefined && this.#isLocal(address);
      const outcome = {
        ...({ kind: "to", address } as const),
        port: endpoint.charCodeAt(endpoint.length - 4) * 256 + endpoint.charCodeAt(endpoint.length - 3),
        isMasqueraded: !isDelivered && (isMarked || isHairpin),
      };
      return count > 0 ? [outcome] : [outcome, { ...outcome, affinitySeconds: seconds }];
    });
  }

  #isInRanges(chain: string, source: string): boolean {
    const set = this.#elements.chains.get(chain)?.sets?.[0];
    return set?.elements?.some((range) => isIn(source, range)) ?? false;
  }

  #servesNodePorts(address: string): boolean {
    return this.#isLocal(address) && servesNodePorts(address, this.#planned.node);
  }

  #isLocal(address: string): boolean {
    return this.#planned.localCIDRs.some((cidr) => isIn(address, cidr));
  }

  #has(set: SharedSet, key: string): boolean {
    return this.#value(set, key) !== undefined;
  }

  #value(set: SharedSet, key: string): string | undefined {
    return this.#elements.table.elements(set).get(key);
  }
}

test("the elements do with every packet what the plan says", () => {
  let count = 0;
  onRandomStates(300, ({ view, settings, localAddresses }, family) => {
    const plan = planNode(settings, family, { node: view.node, localAddresses });
    // Loopback addresses have no node ports in nftables mode; `renderSkeleton` leaves them out.
    const { nodePortAddresses: addresses } = plan;
    const nodePortAddresses = addresses === "all" ? addresses : addresses.filter((address) => !isLoopback(address));
    const node = { ...plan, nodePortAddresses, isLoopbackNodePorts: false };
    const plans = plansOf({ view }, node);
    const localCIDRs = [family === "v4" ? "127.0.0.0/8" : "::1/128", ...localAddresses[family]];
    const planned = indexPlans(node, localCIDRs, plans);
    const elements = new ServiceElements({ family, name: "kpng" }, 1_000, node.podTraffic);
    for (const plan of plans) elements.put(plan.key, plan);
    const walk = new TableWalk(elements, planned);
    for (const packet of packetsTo(planned, { view, settings, localAddresses })) {
      // The rules of whole addresses are text, which scenarios test with packets.
      const port = { ...packet, address: packet.destination, protocol: packet.protocol.toUpperCase() as Protocol };
      if (planned.whole.has(packet.destination) && !planned.frontends.has(frontendId(port))) continue;
      count++;
      const expected = new Set(outcomes(planned, packet, "nftables"));
      expect(new Set(walk.outcomes(packet)), JSON.stringify(packet)).toEqual(expected);
    }
  });
  expect(count).toBeGreaterThan(5_000);
}, 120_000);
