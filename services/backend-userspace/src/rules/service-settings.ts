import type { ServiceView } from "@kpng/model/node-view.ts";
import type { Algorithm, BalancerSettings } from "../balance/balancer.ts";

const balanceAnnotation = "kpng.io/balance";
const proxyProtocolAnnotation = "kpng.io/proxy-protocol";

/** All values of {@link Algorithm}, for the option. */
export const algorithms: readonly Algorithm[] = ["round-robin", "least-connections"];
/** All versions of the PROXY protocol, for the option. */
export const proxyProtocols = ["none", "v1", "v2"] as const;

/** Settings that a Service may have of its own. */
export type ServiceSettings = Pick<BalancerSettings, "algorithm" | "proxyProtocol">;

/**
 * Returns the settings of a Service: its annotations, as far as their values are known, and otherwise the options. A
 * source delivers annotations only if it is told to keep them (`--with-service-annotations 'kpng.io/*'`). Pure.
 *
 * `FrontendTable` calls it with each plan of the Service. Separate from it, because `userspace-options.ts` needs the
 * lists of values for the options.
 */
export function serviceSettings(view: ServiceView | undefined, options: ServiceSettings): ServiceSettings {
  const annotations = view?.service.annotations ?? {};
  return {
    algorithm: algorithms.find((one) => one === annotations[balanceAnnotation]) ?? options.algorithm,
    proxyProtocol: proxyProtocols.find((one) => one === annotations[proxyProtocolAnnotation]) ?? options.proxyProtocol,
  };
}
