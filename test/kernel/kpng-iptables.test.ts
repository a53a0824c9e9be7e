import { kpngIptables, whyNoKpngIptables } from "./backend/kpng-iptables.ts";
import { describeBackend } from "./describe-backend.ts";

describeBackend({ name: "kpng-iptables", whyNot: whyNoKpngIptables(), start: kpngIptables });
