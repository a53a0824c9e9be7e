import { toBinary } from "@bufbuild/protobuf";
import { makePick, makeRandom, makeRandomBelow } from "@kpng/process/random.ts";
import { expect, test } from "vitest";
import { compareText } from "../collections.ts";
import type { EndpointPort } from "../endpoint.ts";
import { EndpointSchema } from "../gen/localv1/api_pb.ts";
import type { ViewEndpoint } from "../node-view.ts";
import { encodeDistinctEndpoint, encodeExtendedEndpoint, encodeKpngEndpoint } from "../testing/endpoint-messages.ts";
import { port, service } from "../testing/views.ts";
import { decodeEndpoint, distinctEndpointBytes, endpointBytes } from "./endpoint-message.ts";
import { WireError } from "./protobuf.ts";

const plain = service("ns/web").service;

const protocols = [undefined, "TCP", "UDP", "SCTP", 0, 7, 128, 2_147_483_647, -1, -2_147_483_648] as const;

/** An endpoint whose fields are each possible, in combinations that no cluster has. */
function randomEndpoint(seed: number): ViewEndpoint {
  const random = makeRandom(seed);
  const [below, pick] = [makeRandomBelow(random), makePick(random)];
  const flag = () => random() < 0.5;
  const text = () =>
    pick("", "a", "web-1.ns", "é", "𝄞 clef", "x".repeat(42), "ü".repeat(43), "y".repeat(300), "z".repeat(9_000));
  const list = <T>(make: () => T): T[] => Array.from({ length: pick(0, 1, 1, 2, 40) }, make);
  const port = (): EndpointPort => ({
    name: text(),
    port: pick(1, 127, 128, 16_383, 16_384, 65_535),
    protocol: pick<EndpointPort["protocol"]>(...protocols),
  });
  const address = () => pick("10.0.0.9", "10.0.0.10", "fd00::1", `10.1.${below(256)}.${below(256)}`);
  return {
    key: "unused",
    addresses: { v4: list(address), v6: list(address) },
    ports: list(port),
    hostname: text(),
    podName: text(),
    nodeName: text(),
    isOnNode: flag(),
    use: { cluster: flag(), local: flag() },
    conditions: { ready: flag(), serving: flag(), terminating: flag() },
    scopes: { internal: flag(), external: flag() },
  };
}

test("endpointBytes equals the library's encoding of the message", () => {
  const named = service("ns/web", { ports: [port(80, { targetPort: "http" })] }).service;
  for (let seed = 1; seed <= 2_000; seed += 1) {
    const endpoint = randomEndpoint(seed);
    for (const owner of [plain, named]) {
      for (const [encode, message] of [
        [() => endpointBytes(endpoint, owner, false), encodeKpngEndpoint(endpoint, owner)],
        [() => endpointBytes(endpoint, owner, true), encodeExtendedEndpoint(endpoint, owner)],
        [() => distinctEndpointBytes(endpoint, owner), encodeDistinctEndpoint(endpoint, owner)],
      ] as const) {
        expect(Buffer.compare(encode(), toBinary(EndpointSchema, message)), `seed ${seed}`).toBe(0);
      }
    }
  }
});

test("decodeEndpoint returns what endpointBytes has encoded, whatever fields of a newer version follow", () => {
  const unknown = [
    0x98, 0x06, 0x81, 0x80, 0x01, 0x92, 0x06, 0x02, 1, 2, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xa5, 0x06, 1, 2, 3, 4,
  ];
  // The message has the other addresses in ascending order, and each once.
  const inOrder = ([first, ...others]: readonly string[]): readonly string[] =>
    first === undefined ? [] : [...new Set([first, ...others.toSorted(compareText)])];
  for (let seed = 1; seed <= 2_000; seed += 1) {
    const { addresses, ports, ...random } = randomEndpoint(seed);
    const texts = [...addresses.v4, ...addresses.v6];
    const families = {
      v4: texts.filter((text) => !text.includes(":")),
      v6: texts.filter((text) => text.includes(":")),
    };
    const endpoint = { ...random, addresses: families, ports };
    const bytes = Buffer.concat([endpointBytes(endpoint, plain, true), Buffer.from(unknown)]);
    const expected = { ...endpoint, addresses: { v4: inOrder(families.v4), v6: inOrder(families.v6) } };
    const decoded = decodeEndpoint("unused", bytes);
    expect(decoded, `seed ${seed}`).toEqual({ ...expected, ports: ports.map(withoutUnset) });
    const cut = bytes.subarray(0, bytes.length - 1 - (seed % 3));
    expect(() => decodeEndpoint("unused", cut), `seed ${seed}`).toThrow(WireError);
  }
});

/** Protocol 0 is that of a port whose protocol is not known. */
function withoutUnset({ name, port, protocol }: EndpointPort): EndpointPort {
  return protocol === undefined || protocol === 0 ? { name, port } : { name, port, protocol };
}

test("the parts of a repeated message are merged, as the specification of protobuf says", () => {
  const [clusterAndReady, servingButNotCluster] = [
    [0xa2, 6, 4, 8, 1, 24, 1],
    [0xa2, 6, 4, 8, 0, 32, 1],
  ];
  const [internal, external] = [
    [0x2a, 2, 8, 1],
    [0x2a, 2, 16, 1],
  ];
  const bytes = Buffer.from([...clusterAndReady, ...internal, ...external, ...servingButNotCluster]);
  expect(decodeEndpoint("web-1", bytes)).toMatchObject({
    use: { cluster: false, local: false },
    conditions: { ready: true, serving: true, terminating: false },
    scopes: { internal: true, external: true },
  });
});

test("an endpoint with a field of number 0 is refused, also within an embedded message", () => {
  for (const bytes of [
    [0, 1],
    [0x2a, 3, 0, 24, 1],
  ]) {
    expect(() => decodeEndpoint("web-1", Buffer.from(bytes))).toThrow(WireError);
  }
});

test("an endpoint whose encoding fails leaves nothing in the next one", () => {
  const endpoint = randomEndpoint(1);
  const broken = { ...endpoint, hostname: "web-1", ports: undefined as unknown as readonly EndpointPort[] };
  const bytes = Buffer.from(endpointBytes(endpoint, plain, true));
  expect(() => endpointBytes(broken, plain, true)).toThrow(TypeError);
  expect(Buffer.compare(endpointBytes(endpoint, plain, true), bytes)).toBe(0);
});
