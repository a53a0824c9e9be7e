import { clusterIPScenarios } from "../scenario/cases/cluster-ip.ts";
import { loadBalancerScenarios } from "../scenario/cases/load-balancer.ts";
import { nodePortScenarios } from "../scenario/cases/node-port.ts";
import { updates } from "../scenario/updates.ts";
import { kpngUserspace } from "./backend/kpng-userspace.ts";
import { describeBackend } from "./describe-backend.ts";

/** The updates in which addresses come or go; in all others, only the listeners of kpng-userspace have a part. */
const names = [
  "the last endpoint is removed",
  "the Service changes its port and node port",
  "the Service is deleted and a different one is created",
  "the rules are lost and the backend restarts",
];

describeBackend({
  name: "kpng-userspace at addresses of its own",
  whyNot: undefined,
  start: (world) => kpngUserspace(world, "address"),
  // The way in concerns frontends alone; kpng-userspace.test.ts has everything else.
  scenarios: [...clusterIPScenarios, ...nodePortScenarios, ...loadBalancerScenarios],
  updates: updates.filter(({ name }) => names.includes(name)),
});
