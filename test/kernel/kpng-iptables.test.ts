import { ownProxies } from "./backend/kpng-proxy.ts";
import { describeProxy } from "./describe-proxy.ts";

describeProxy({ name: "kpng-iptables", start: () => ({ proxy: ownProxies.iptables }) });
