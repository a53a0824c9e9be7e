import { scenariosOf } from "../scenario/scenarios.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeBackend } from "./describe-backend.ts";
import { whyNoLegacy } from "./laboratory/legacy-tools.ts";
import { iptablesRules } from "./rules.ts";

describeBackend({
  name: "kube-proxy with iptables-legacy",
  whyNot: (await whyNoKubeProxy()) ?? whyNoLegacy(),
  variant: "legacy",
  start: kubeProxy,
  rules: iptablesRules,
  scenarios: scenariosOf("kube-proxy"),
});
