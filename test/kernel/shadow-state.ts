import { named, publicAddress, together } from "../scenario/build.ts";
import { ranges } from "../scenario/places.ts";

/** One Service of each kind with different rules. */
export const state = together(
  named("web", { number: 11, affinitySeconds: 600 }, ["a", "b", "c"]),
  named("none", { number: 12 }, []),
  named(
    "balanced",
    {
      number: 13,
      ports: [{ port: 80, nodePort: 30_080 }],
      loadBalancerIPs: [publicAddress(10)],
      externalIPs: [publicAddress(20)],
      sourceRanges: [ranges.outside],
    },
    ["b", "c"],
  ),
  named(
    "kept",
    {
      number: 14,
      ports: [{ port: 80, nodePort: 30_081 }],
      loadBalancerIPs: [publicAddress(11)],
      external: "Local",
      healthCheckNodePort: 30_100,
    },
    ["a", "d"],
  ),
  named("inside", { number: 15, internal: "Local" }, ["d"]),
);
