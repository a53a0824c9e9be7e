import { scenariosOf } from "../scenario/scenarios.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeBackend } from "./describe-backend.ts";
import { iptablesRules } from "./rules.ts";

// The oracle: the expected results of scenarios are those of the real kube-proxy.
describeBackend({
  name: "kube-proxy",
  whyNot: await whyNoKubeProxy(),
  start: kubeProxy,
  rules: iptablesRules,
  scenarios: scenariosOf("kube-proxy"),
});
