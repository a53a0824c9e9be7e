import { ownProxies } from "./backend/kpng-proxy.ts";
import { describeProxy } from "./describe-proxy.ts";
import { selectedCases } from "./selection.ts";

describeProxy({ name: "kpng-userspace", start: () => ({ proxy: ownProxies.userspace }), cases: selectedCases });
