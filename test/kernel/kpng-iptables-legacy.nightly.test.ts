import { kpngIptables } from "./backend/kpng-proxy.ts";
import { describeBackend } from "./describe-backend.ts";
import { whyNoLegacy } from "./laboratory/legacy-tools.ts";
import { iptablesRules } from "./rules.ts";

describeBackend({
  name: "kpng-iptables with iptables-legacy",
  whyNot: whyNoLegacy(),
  variant: "legacy",
  start: kpngIptables,
  rules: iptablesRules,
});
