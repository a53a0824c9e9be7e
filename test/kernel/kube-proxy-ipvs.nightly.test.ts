import { test } from "vitest";
import { scenarios, scenariosOf } from "../scenario/scenarios.ts";
import { whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeGuest } from "./ipvs/describe-guest.ts";
import { scenarioNames, wantedNames } from "./ipvs/wanted-names.ts";

const varying = new Set(
  scenarios.filter((each) => !scenariosOf("kube-proxy-ipvs").includes(each)).map(({ name }) => name),
);

// The oracle for kpng-ipvs: the real kube-proxy in ipvs mode on the same kernel. kube-proxy starts about 60 programs in
// each sync of a family, and a scenario takes minutes in a guest, so it runs only when it is asked for.
if (process.env.KPNG_IPVS_SCENARIOS === undefined) {
  test.skip("kube-proxy in ipvs mode (skipped: takes half an hour; KPNG_IPVS_SCENARIOS=. runs all scenarios)", () =>
    undefined);
} else {
  describeGuest("scenarios and updates: kube-proxy in ipvs mode", {
    program: "test/kernel/ipvs/oracle-main.ts",
    names: wantedNames(scenarioNames, new Set()).filter((name) => !varying.has(name)),
    whyNot: await whyNoKubeProxy(),
    memoryMiB: 2_560,
  });
}
