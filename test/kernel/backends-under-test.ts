import { kpngIptables, whyNoKpngIptables } from "./backend/kpng-iptables.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import type { Backend } from "./backends.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** A backend and what it takes to feed it. */
export type RunningBackend = Backend & { close(): Promise<void> };

/** Every backend that the scenarios judge; kube-proxy first, because it is what they must agree with. */
export const backendsUnderTest: readonly {
  readonly name: string;
  /** Why it cannot run here; undefined if it can. */
  readonly whyNot: string | undefined;
  readonly start: (world: TwoNodes) => Promise<RunningBackend>;
}[] = [
  { name: "kube-proxy", whyNot: await whyNoKubeProxy(), start: kubeProxy },
  { name: "kpng-iptables", whyNot: whyNoKpngIptables(), start: kpngIptables },
];
