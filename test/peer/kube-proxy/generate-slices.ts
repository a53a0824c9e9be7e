import { type Family, families } from "@kpng/model/address.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import type { Dice } from "./dice.ts";
import { makePods, type RawEndpoint, wildConditions } from "./generate-pods.ts";
import type { RawPort } from "./generate-service.ts";

export interface SliceTarget {
  readonly namespace: string;
  /** Undefined leaves the label out. */
  readonly service: string | undefined;
  readonly ports: readonly RawPort[];
  readonly labels?: Readonly<Record<string, string>>;
}

interface RawSlicePort {
  readonly name?: string;
  readonly port?: number;
  readonly protocol?: string;
}

/** Slices for a Service, as if several controllers and people had written them. */
export function makeSlices(dice: Dice, target: SliceTarget): KubeObject[] {
  return families.flatMap((family) => {
    const pods = makePods(dice, target.namespace, family);
    const twins = dice.some(pods.filter(isFirm), 25).map((pod) => terminatingTwin(dice, pod));
    const parts = Array.from({ length: dice.number(1, 3) }, () => [] as RawEndpoint[]);
    for (const endpoint of dice.shuffle([...pods, ...twins])) {
      // Some are in two slices at once, as when a controller moves them.
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

/** A slice of host names, which proxies pass over. */
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

/** kube-proxy takes it in the place of any terminating one of the same address. */
function isFirm({ conditions }: RawEndpoint): boolean {
  return conditions?.terminating !== true;
}

/**
 * Another endpoint of the same address, that of a pod which is going. Of two that both are not terminating kube-proxy
 * takes any, by the order of a map, so there are none such here.
 */
function terminatingTwin(dice: Dice, pod: RawEndpoint): RawEndpoint {
  return {
    ...pod,
    conditions: { ...wildConditions(dice), terminating: true },
    nodeName: dice.pick(["n1", "n2", "n4"]),
  };
}

/** The same port over another protocol, which is another port. */
function overOther(port: RawSlicePort): RawSlicePort {
  return { ...port, protocol: port.protocol === "UDP" ? "TCP" : "UDP" };
}

/** The ports of one slice: numbers of named ports differ, some are missing, some are no use. */
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
