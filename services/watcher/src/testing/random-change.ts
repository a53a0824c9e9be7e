import { makePick } from "@kpng/process/testing/random.ts";
import type { ObjectChange } from "../source/source.ts";
import { addresses, draining, endpoint, node, ready, service, slice } from "./build.ts";

/**
 * Returns a random change of one of few Services, slices and nodes, so that changes often affect the same object.
 * `random` returns numbers from 0 up to but not including 1.
 *
 * The test of `Subscription` and `test/process/reconstruction.test.ts` make histories of it; separate, because both
 * need it.
 */
export function randomChange(random: () => number): ObjectChange {
  const pick = makePick(random);
  const name = pick("a", "b", "c", "d");
  switch (pick("service", "service", "slice", "slice", "slice", "node", "gone")) {
    case "service": {
      const policy = {
        internalTrafficPolicy: pick("Cluster", "Local"),
        externalTrafficPolicy: pick("Cluster", "Local"),
      } as const;
      const external = pick({}, { externalIPs: addresses("192.0.2.1") });
      const age = pick({}, { createdSeconds: pick(1, 1_714_564_800), uid: pick("0b1c", "7f3e") });
      const proxyName = pick("", "", "x");
      return { kind: "put-service", service: service({ name, proxyName, ...age, ...policy, ...external }) };
    }
    case "slice": {
      const made = Array.from({ length: pick(0, 1, 3) }, (_, index) =>
        endpoint(`10.1.0.${index + pick(1, 2)}`, {
          nodeName: pick("n1", "n2"),
          podName: pick("", `p${index}`),
          conditions: pick(ready, ready, draining),
          hintedZones: pick([], ["z1"], ["z2"]),
          hintedNodes: pick([], [], ["n1"], ["n2"]),
        }),
      );
      return { kind: "put-slice", slice: slice(made, { serviceName: name, name: pick("s1", "s2") }) };
    }
    case "node":
      return { kind: "put-node", node: node(pick("n1", "n2"), { zone: pick("z1", "z2", "") }) };
    default:
      return pick<ObjectChange>(
        { kind: "delete-service", key: `ns/${name}` },
        { kind: "delete-slice", key: `ns/${name}/${pick("s1", "s2")}` },
        { kind: "delete-node", name: pick("n1", "n2") },
      );
  }
}
