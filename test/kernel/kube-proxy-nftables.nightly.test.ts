import { scenariosOf } from "../scenario/scenarios.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeBackend } from "./describe-backend.ts";

// The oracle for kpng-nft: what scenarios record for "nft" is what the real kube-proxy does in nftables mode, unless
// they name "kube-proxy-nft".
describeBackend({
  name: "kube-proxy in nftables mode",
  whyNot: await whyNoKubeProxy(),
  start: (world) => kubeProxy(world, undefined, "nftables"),
  scenarios: scenariosOf("kube-proxy-nft"),
});
