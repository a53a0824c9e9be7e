import { kpngIptables, whyNoKpngIptables } from "./backend/kpng-iptables.ts";
import { describeBackend } from "./describe-backend.ts";
import { iptablesRules } from "./iptables-rules.ts";

describeBackend({ name: "kpng-iptables", whyNot: whyNoKpngIptables(), start: kpngIptables, rules: iptablesRules });
