import type { State } from "@kpng/laboratory/scenario/build.ts";
import { ProxyProfile } from "@kpng/laboratory/scenario/deviations.ts";
import {
  type ConcretePacket,
  concretePackets,
  describeOutcome,
  describePacket,
  localhost,
  type Packet,
  senderAddress,
} from "@kpng/laboratory/scenario/packet.ts";
import { boundAddress, gateways, hosts, podCIDRs } from "@kpng/laboratory/scenario/places.ts";
import type { Scenario, Settings } from "@kpng/laboratory/scenario/scenario.ts";
import { scenarios } from "@kpng/laboratory/scenario/scenarios.ts";
import { updates } from "@kpng/laboratory/scenario/updates.ts";
import { SourceKind, Verdict } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import type { ExplainResponse } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { Node } from "@kpng/model/node.ts";
import { explainPacket } from "@kpng/watcher/inspect/explain-packet.ts";
import type { ExplainSettings } from "@kpng/watcher/inspect/find-frontend.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { describe, expect, test } from "vitest";
import { objectsOfState } from "./view-of-state.ts";

// test/kernel verifies the results of these scenarios with the real kube-proxy.

function snapshotOf(state: State) {
  const store = new Store();
  const objects = objectsOfState(state);
  const more = [...Object.values(gateways.n1), ...Object.values(boundAddress)];
  const addressesOf = ({ name, addresses }: Node) => (name === "n1" ? [...addresses, ...more] : addresses);
  store.replace({ ...objects, nodes: objects.nodes.map((node) => ({ ...node, addresses: addressesOf(node) })) });
  return store.snapshot;
}

function settingsOf({ detectLocal = "ClusterCIDR", ...settings }: Settings): ExplainSettings {
  return {
    // Packets from the bridge or interfaces of the node's pods have an address of a pod.
    clusterCIDRs: Object.values(detectLocal === "ClusterCIDR" ? podCIDRs.cluster : podCIDRs.n1),
    isMasqueradeAll: settings.masqueradeAll ?? false,
    nodePortAddresses: settings.nodePortAddresses ?? [],
  };
}

/** Returns a line for each packet with a wrong explanation. */
function wrongAnswers({ state, packets, settings = {} }: Scenario): readonly string[] {
  const snapshot = snapshotOf(state);
  const proxy = settingsOf(settings);
  const own = (family: "v4" | "v6") => [
    hosts.n1[family],
    gateways.n1[family],
    boundAddress[family],
    "127.0.0.1",
    "::1",
  ];
  return packets
    .flatMap((packet) => concretePackets({ state, settings }, packet, ProxyProfile.kubeProxy))
    .flatMap((concrete) => {
      const { packet, family, protocol, address, port } = concrete;
      const isOwn = own(family).includes(address);
      const answer = explainPacket(
        snapshot,
        "n1",
        "",
        {
          family,
          protocol: protocolNames[protocol],
          source: sourceOf(packet),
          // A node uses its own address as source when it is the destination.
          sourceAddress: packet.from.kind === "node" && isOwn ? address : senderAddress(packet.from, family),
          destination: address,
          port,
        },
        proxy,
      );
      if (isAsSaid(answer, concrete)) return [];
      const said = `${family} ${protocol} ${describePacket(packet)} (${address})`;
      const steps = answer.steps.map(({ text }) => text).join(" ");
      return [`${said}: should be ${describeOutcome(packet)}; explained as verdict ${answer.verdict}: ${steps}`];
    });
}

/**
 * Scenarios whose results depend only on the cluster and on settings that a request can state, and not on a firewall or
 * the guard of the loopback address.
 */
const ofCluster = scenarios
  .filter(({ firewall }) => firewall === undefined)
  .filter(({ settings }) => settings?.detectLocal !== "none" && settings?.localhostNodePorts !== false)
  .map((scenario) => ({
    ...scenario,
    packets: scenario.packets.filter(({ from, to }) => from.kind !== "neighbour" || to !== localhost),
  }));

const protocolNames = { tcp: "TCP", udp: "UDP", sctp: "SCTP" } as const;

/** Returns the class of a sender. A neighbour counts as outside. */
function sourceOf({ from }: Packet): SourceKind {
  const kinds = { pod: SourceKind.POD, node: SourceKind.NODE, outside: SourceKind.OUTSIDE };
  return kinds[from.kind === "neighbour" ? "outside" : from.kind];
}

function isAsSaid(answer: ExplainResponse, { packet, family, targetPort }: ConcretePacket): boolean {
  if ("verdict" in packet) {
    const verdicts: Readonly<Record<string, Verdict>> = {
      refused: Verdict.REJECT,
      silent: Verdict.DROP,
      untouched: Verdict.UNTOUCHED,
    };
    return answer.verdict === verdicts[packet.verdict];
  }
  const used = answer.endpoints.filter(({ isUsed }) => isUsed).map((one) => `${one.address} ${one.port}`);
  const expected = packet.goesTo.map((host) => `${hosts[host][family]} ${targetPort}`);
  if (answer.verdict !== Verdict.FORWARD || used.sort().join() !== expected.sort().join()) return false;
  if (packet.source === undefined) return true;
  const { from } = packet;
  const isItself = from.kind === "pod" && packet.goesTo.length === 1 && packet.goesTo[0] === from.name;
  return (packet.source === "masqueraded") === (answer.isMasqueraded || isItself);
}

describe("Explain says what kube-proxy does", () => {
  test.each(ofCluster.map((scenario) => [scenario.name, scenario] as const))("%s", (_, scenario) => {
    expect(wrongAnswers(scenario)).toEqual([]);
  });

  test.each(updates.map(({ name, after }) => [name, after] as const))("after %s", (_, after) => {
    expect(wrongAnswers(after)).toEqual([]);
  });
});
