import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { publicAddress, web } from "@kpng/laboratory/scenario/build.ts";
import type { NodeUnderTest } from "../node-under-test.ts";

/** Runs a check on a node with kpng-ipvs, and returns what is wrong: a line for each failure. */
type Check = (world: TwoNodes, node: NodeUnderTest) => Promise<readonly string[]>;

/** Checks by name. Each begins with a state of its own. */
export type Checks = Readonly<Record<string, Check>>;

/** Options of the Service that most checks use: port 80, a node port and a load-balancer IP. */
export const options = { ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] };

/** Cluster state with that Service, and its endpoints b and c. */
export const both = web(options, ["b", "c"]);

/** Cluster state with that Service, and endpoint c alone. */
export const onlyC = web(options, ["c"]);

/** Returns a line if a condition does not hold. */
export function expectTrue(condition: boolean, said: string): readonly string[] {
  return condition ? [] : [said];
}
