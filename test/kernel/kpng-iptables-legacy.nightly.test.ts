import { kpngIptables, whyNoKpngIptables } from "./backend/kpng-iptables.ts";
import { describeBackend } from "./describe-backend.ts";
import { iptablesRules } from "./iptables-rules.ts";
import { whyNoLegacy } from "./laboratory/legacy-tools.ts";

describeBackend({
  name: "kpng-iptables with iptables-legacy",
  whyNot: whyNoKpngIptables() ?? whyNoLegacy(),
  variant: "legacy",
  start: kpngIptables,
  rules: iptablesRules,
});
