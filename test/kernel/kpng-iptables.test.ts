import { kpngIptables } from "./backend/kpng-proxy.ts";
import { describeBackend } from "./describe-backend.ts";
import { iptablesRules } from "./rules.ts";

describeBackend({ name: "kpng-iptables", start: kpngIptables, rules: iptablesRules });
