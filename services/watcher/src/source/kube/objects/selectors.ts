import { headlessLabel, proxyNameLabel } from "../../decode/decode-service.ts";

/**
 * Returns the label selector of the Services with these proxy names, or undefined if no selector can express them. `""`
 * stands for the Services without the label, as for kube-proxy. `serviceKind` calls it, so that the API server sends
 * only these Services; `filterProxyNames` filters the rest.
 *
 * Separate from `object-kinds.ts`, because it is only about the language of selectors.
 */
export function serviceSelector(proxyNames: readonly string[]): string | undefined {
  if (proxyNames.length === 0) return undefined;
  if (proxyNames.every((name) => name === "")) return `!${proxyNameLabel}`;
  // The requirements of a selector are a conjunction: "no label, or label a" cannot be expressed.
  return proxyNames.includes("") ? undefined : `${proxyNameLabel} in (${proxyNames.join(",")})`;
}

/**
 * Returns the label selector of the EndpointSlices of these Services, or undefined if no selector can express them. It
 * only excludes headless slices, which only external programs (Services with a proxy name) need. A slice made by hand
 * may lack the proxy name of its Service, so no selector asks for it. `sliceKind` calls it.
 */
export function sliceSelector(proxyNames: readonly string[]): string | undefined {
  return proxyNames.length > 0 && proxyNames.every((name) => name === "") ? `!${headlessLabel}` : undefined;
}
