import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { makePick, makeRandom } from "@kpng/process/testing/random.ts";
import { Registry } from "prom-client";
import { expect, onTestFinished, test } from "vitest";
import type { NodeViewRequest } from "../../items/view-target.ts";
import type { Snapshot } from "../../store/snapshot.ts";
import { Store } from "../../store/store.ts";
import {
  addresses,
  draining,
  endpoint,
  httpPort,
  node,
  ready,
  service,
  servicePort,
  slice,
} from "../../testing/build.ts";
import { expectedItems } from "../../testing/expected-items.ts";
import { serveStore } from "../../testing/serve-store.ts";
import type { ObjectChange } from "../source.ts";
import { apiSource } from "./api-source.ts";

type Pick = ReturnType<typeof makePick>;

/** A change of one of few objects, with everything that the wire could lose. */
function randomChange(pick: Pick): ObjectChange {
  const name = pick("a", "b", "c");
  const some = (...texts: string[]) => pick({ v4: [], v6: [] }, addresses(...texts));
  switch (pick("service", "service", "slice", "slice", "slice", "node", "cidrs", "gone")) {
    case "service":
      return {
        kind: "put-service",
        service: service({
          name,
          type: pick("ClusterIP", "NodePort", "LoadBalancer"),
          proxyName: pick("", "", "x"),
          labels: pick({}, { b: "2", a: "1" }),
          isHeadless: pick(false, false, true),
          externalIPs: some("192.0.2.2", "192.0.2.1"),
          loadBalancerIPs: pick(undefined, some("198.51.100.1", "2001:db8::1")),
          proxyModeLoadBalancerIPs: some("198.51.100.9"),
          ipFilters: pick([], [{ sourceRanges: ["10.0.0.0/8", "192.168.0.0/16"] }]),
          ports: [
            servicePort({ nodePort: pick(0, 30_080), targetPort: pick<number | string>(8_080, "web") }),
            ...pick([], [servicePort({ name: "dns", protocol: "UDP", port: 53 })]),
          ],
          internalTrafficPolicy: pick("Cluster", "Local"),
          externalTrafficPolicy: pick("Cluster", "Local"),
          healthCheckNodePort: pick(0, 31_000),
          clientIPAffinitySeconds: pick(undefined, 10_800),
          ...pick({}, { createdSeconds: 1_700_000_000, uid: "u1" }),
        }),
      };
    case "slice": {
      // In a slice with the keys of a state file, each pod occurs once.
      const hasPodKeys = pick(false, false, true);
      const made = Array.from({ length: pick(0, 1, 2, 5) }, (_, index) => {
        const ip = `10.1.0.${pick(index, 1, 2)}`;
        return endpoint(pick([ip], [ip], [ip, "10.1.0.9", "10.1.0.8"], [ip, `fd00::${index}`]), {
          nodeName: pick("n1", "n2", ""),
          zone: pick("", "z1"),
          podName: pick("", hasPodKeys ? `p${index}` : "p0", `p${index}`),
          hostname: pick("", "h"),
          ports: pick([httpPort], [httpPort, { name: "dns", port: 53, protocol: "UDP" }], []),
          conditions: pick(ready, ready, draining),
          hintedZones: pick([], ["z1"], ["z2", "z1"]),
          hintedNodes: pick([], [], ["n1"]),
        });
      });
      // A slice may be named like its Service.
      const more = { serviceName: name, name: pick(name, `${name}-1`), hasPodKeys };
      return { kind: "put-slice", slice: slice(made, more) };
    }
    case "node": {
      const more = { addresses: pick([], ["192.0.2.10", "2001:db8::10"]), podCIDRs: pick([], ["10.1.0.0/24"]) };
      const labels = pick({}, { l: "v" });
      return {
        kind: "put-node",
        node: node(pick("n1", "n2"), { zone: pick("z1", "z2", ""), isEligible: pick(true, false), labels, ...more }),
      };
    }
    case "cidrs":
      return { kind: "set-service-cidrs", serviceCIDRs: pick([], ["10.96.0.0/12"], ["10.96.0.0/12", "fd00::/108"]) };
    default:
      return pick<ObjectChange>(
        { kind: "delete-service", key: `ns/${name}` },
        { kind: "delete-slice", key: `ns/${name}/${name}` },
        { kind: "delete-node", name: pick("n1", "n2") },
      );
  }
}

const requests: readonly NodeViewRequest[] = ["n1", "n2", "unknown"].flatMap((nodeName) => [
  { nodeName, proxyName: "", isExtended: true, wantsNode: true },
  { nodeName, proxyName: "x", isExtended: false, wantsNode: false },
]);

/** All items of the views of some nodes, by path, with their bytes. */
function viewsOf(snapshot: Snapshot): readonly string[] {
  return requests.flatMap((request) =>
    [...expectedItems(snapshot, request)]
      .map(({ section, path, frame }) => `${request.nodeName} ${section} ${path} ${Buffer.from(frame).toString("hex")}`)
      .sort(),
  );
}

async function relayOf(upstream: Store): Promise<Store> {
  const server = await serveStore(upstream);
  const [store, stop] = [new Store(), new AbortController()];
  const running = apiSource({
    transport: dial({ api: server.address }),
    sink: store,
    log: createLog("error", () => undefined),
    health: new Health(),
    metrics: new Registry(),
  }).run(stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await running;
    await server.stop();
  });
  return store;
}

test("the views through two relays are those of the first watcher, byte for byte, in random states", {
  timeout: 120_000,
}, async () => {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e6));
  const pick = makePick(makeRandom(seed));
  const origin = new Store();
  let version = 1n;
  const versions = () => ({ services: version, slices: version, nodes: version });
  const change = (): void => {
    version += 1n;
    const mark: ObjectChange = {
      kind: "put-service",
      service: service({ name: "mark", labels: { at: `${version}` } }),
    };
    const changes = [...Array.from({ length: pick(1, 1, 4) }, () => randomChange(pick)), mark];
    origin.apply(changes, { source: "kube", receivedAtMs: 0, versions: versions(), clusterId: "c1" });
  };
  origin.replace({ services: [], slices: [], nodes: [] }, { source: "kube", receivedAtMs: 0, versions: versions() });
  for (let count = 0; count < 30; count++) change();
  const first = await relayOf(origin);
  const second = await relayOf(first);
  for (let count = 0; count < 300; count++) {
    const mark = origin.snapshot.services.get("ns/mark");
    const relayed = () => second.snapshot.services.get("ns/mark")?.labels.at;
    await expect.poll(relayed, { timeout: 30_000, interval: 1 }).toBe(mark?.labels.at);
    expect(second.position).toEqual(origin.position);
    expect(viewsOf(second.snapshot), `SEED=${seed}, change ${count}`).toEqual(viewsOf(origin.snapshot));
    expect(second.snapshot.serviceCIDRs).toEqual(origin.snapshot.serviceCIDRs);
    change();
  }
});
