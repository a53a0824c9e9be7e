import { type Family, families } from "@kpng/model/address.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import type { Dice } from "./dice.ts";
import { makePods, type RawEndpoint, wildConditions } from "./generate-pods.ts";
import type { RawPort } from "./generate-service.ts";

export interface SliceTarget {
  readonly namespace: string;
  /** Undefined omits the label. */
  readonly service: string | undefined;
  readonly ports: readonly RawPort[];
  readonly labels?: Readonly<Record<string, string>>;
}

interface RawSlicePort {
  readonly name?: string;
  readonly port?: number;
  readonly protocol?: string;
}

/** Returns slices for a Service, as if several controllers and users had written them. */
export function makeSlices(dice: Dice, target: SliceTarget): KubeObject[] {
  return families.flatMap((family) => {
    const pods = makePods(dice, target.namespace, family);
    const twins = dice.some(pods.filter(isFirm), 25).map((pod) => terminatingTwin(dice, pod));
    const parts = Array.from({ length: dice.number(1, 3) }, () => [] as RawEndpoint[]);
    for (const endpoint of dice.shuffle([...pods, ...twins])) {
      // Some endpoints are in two slices, as while a controller moves them.
      for (const part of dice.shuffle(parts).slice(0, dice.chance(20) ? 2 : 1)) part.push(endpoint);
    }
    const basePorts = makePorts(dice, target.ports);
    const contents = parts.map((endpoints) => ({
      endpoints,
      ports: dice.chance(45) ? basePorts : makePorts(dice, target.ports),
    }));
    const [first] = contents;
    if (first !== undefined && dice.chance(15)) contents.push({ ...first, ports: first.ports.map(overOther) });
    return contents.map((content, index) =>
      makeSlice(target, `${target.service ?? "nobody"}-${family}-${index}`, family, content),
    );
  });
}

/** Returns a slice of host names, which proxies ignore. */
export function makeNameSlice(target: SliceTarget): KubeObject {
  const ports = target.ports.map(({ name = "", port, protocol }) => ({ name, port, protocol }));
  return makeSlice(target, "names", "FQDN", { endpoints: [{ addresses: ["one.example.org"] }], ports });
}

function makeSlice(
  { namespace, service, labels }: SliceTarget,
  name: string,
  family: Family | "FQDN",
  content: { readonly endpoints: readonly RawEndpoint[]; readonly ports: readonly RawSlicePort[] },
): KubeObject {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name,
      namespace,
      labels: {
        ...labels,
        ...(service === undefined ? {} : { "kubernetes.io/service-name": service }),
        "endpointslice.kubernetes.io/managed-by": "kpng-test",
      },
    },
    addressType: { v4: "IPv4", v6: "IPv6", FQDN: "FQDN" }[family],
    ...content,
  };
}

/** Returns whether kube-proxy prefers the endpoint to a terminating one with the same address. */
function isFirm({ conditions }: RawEndpoint): boolean {
  return conditions?.terminating !== true;
}

/**
 * Returns another endpoint with the same address, of a terminating pod. Of two endpoints that are not terminating,
 * kube-proxy uses an arbitrary one, in the order of a map, so no state contains such a pair.
 */
function terminatingTwin(dice: Dice, pod: RawEndpoint): RawEndpoint {
  return {
    ...pod,
    conditions: { ...wildConditions(dice), terminating: true },
    nodeName: dice.pick(["n1", "n2", "n4"]),
  };
}

/** Returns the same port number with another protocol, which is a different port. */
function overOther(port: RawSlicePort): RawSlicePort {
  return { ...port, protocol: port.protocol === "UDP" ? "TCP" : "UDP" };
}

/** Returns the ports of a slice: the numbers of named ports differ, and some ports are missing or useless. */
function makePorts(dice: Dice, wanted: readonly RawPort[]): RawSlicePort[] {
  if (dice.chance(5)) return [];
  const ports = dice.some(wanted, 82).map(({ name, protocol }, index): RawSlicePort => {
    const port = dice.chance(5) ? {} : { port: 8080 + index * 100 + (dice.chance(25) ? dice.number(1, 3) : 0) };
    const wrong = protocol === "TCP" ? "UDP" : "TCP";
    return {
      ...(name === undefined || (name === "" && dice.chance(50)) ? {} : { name }),
      ...port,
      ...(protocol === "TCP" && dice.chance(30) ? {} : { protocol: dice.chance(8) ? wrong : protocol }),
    };
  });
  return dice.chance(15) ? [...ports, { name: "other", port: 9999, protocol: "TCP" }] : ports;
}
