import { kubeProxy } from "../backend/kube-proxy.ts";
import { buildTwoNodes } from "../laboratory/two-nodes.ts";
import { GuestResults } from "./guest-results.ts";
import { reportScenarios } from "./report-scenarios.ts";

// Runs the scenarios and updates with the real kube-proxy in ipvs mode, inside the guest, where etcd and kube-apiserver
// run, too.

const world = await buildTwoNodes();
const backend = await kubeProxy(world, undefined, "ipvs");
await reportScenarios(new GuestResults(process.argv), world, { ...backend, answersHealthChecks: true });
process.exit(0);
