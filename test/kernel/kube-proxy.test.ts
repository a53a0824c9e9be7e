import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import { describeBackend } from "./describe-backend.ts";

// The oracle: what scenarios expect is what the real kube-proxy's packets do.
describeBackend({ name: "kube-proxy", whyNot: await whyNoKubeProxy(), start: kubeProxy });
