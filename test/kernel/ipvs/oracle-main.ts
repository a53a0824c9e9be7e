import { kubeProxy } from "../backend/kube-proxy.ts";
import { buildTwoNodes } from "../laboratory/two-nodes.ts";
import { GuestResults } from "./guest-results.ts";
import { reportScenarios } from "./report-scenarios.ts";

// Runs the scenarios and updates with the real kube-proxy in ipvs mode, inside the guest, where etcd and kube-apiserver
// run, too.

const world = await buildTwoNodes();
const backend = await kubeProxy(world, undefined, "ipvs");
await reportScenarios(new GuestResults(process.argv), world, {
  ...backend,
  answersHealthChecks: true,
  // kube-proxy 1.36.3 forgets no draining endpoint when it deletes the virtual server, whose successor then goes on to
  // serve that endpoint: in "the target port changes" after another update.
  isStartedForUpdates: true,
});
process.exit(0);
