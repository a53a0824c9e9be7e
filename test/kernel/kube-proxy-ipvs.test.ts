import { whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { scenarioNames, wantedNames } from "./ipvs/wanted-names.ts";

/** Quick run: most of the differences. kube-proxy starts about 60 programs in each sync of a family. */
const quick = new Set([
  "a node port",
  "both policies Local",
  "no endpoint",
  "policy DROP in INPUT",
  "an endpoint terminates",
]);

// The oracle for kpng-ipvs: the real kube-proxy in ipvs mode on the same kernel.
describeGuest("scenarios and updates: kube-proxy in ipvs mode", {
  program: "test/kernel/ipvs/oracle-main.ts",
  names: wantedNames(scenarioNames, quick),
  whyNot: await whyNoKubeProxy(),
  memoryMiB: 2_560,
});
