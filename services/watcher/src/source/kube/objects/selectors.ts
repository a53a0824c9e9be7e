import { proxyNameLabel } from "../../decode/decode-service.ts";
import { headlessLabel } from "../../decode/decode-slice.ts";

/**
 * Returns the label selector of the Services with these proxy names, or undefined if no selector has that meaning. `""`
 * is the Services without the label, as for kube-proxy. `serviceKind` calls it, so that the API server sends only these
 * Services; `filterProxyNames` filters whatever no selector can express.
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
 * Returns the label selector of the EndpointSlices of these Services, or undefined if no selector has that meaning.
 * Slices for an external program are headless, and slices made by hand may lack the proxy name of their Service.
 * `sliceKind` calls it.
 */
export function sliceSelector(proxyNames: readonly string[]): string | undefined {
  return proxyNames.length > 0 && proxyNames.every((name) => name === "") ? `!${headlessLabel}` : undefined;
}
