import { isDeepStrictEqual } from "node:util";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";

/** Returns `old` itself if `value` equals it, otherwise `value`, because the store compares objects by reference. */
export function reuseValue<T>(old: T | undefined, value: T): T {
  return old !== undefined && isDeepStrictEqual(old, value) ? old : value;
}

/**
 * Returns `old` itself if `slice` equals it except for `triggeredAtMs`, because a new trigger time alone is not a
 * change. Otherwise returns `slice` with the unchanged endpoints of `old`.
 */
export function reuseSlice(old: EndpointSlice | undefined, slice: EndpointSlice): EndpointSlice {
  if (old === undefined || old === slice) return slice;
  const isSame = isDeepStrictEqual({ ...old, triggeredAtMs: undefined }, { ...slice, triggeredAtMs: undefined });
  return isSame ? old : reuseEndpoints(old, slice);
}

/**
 * Returns `slice` with the endpoint objects of `before` wherever they are equal. An update repeats up to a hundred
 * endpoints, of which usually only one has changed; values derived from the other endpoints stay valid. Pure;
 * O(endpoints).
 */
function reuseEndpoints(before: EndpointSlice, slice: EndpointSlice): EndpointSlice {
  const byAddress = new Map(before.endpoints.map((endpoint) => [firstAddress(endpoint), endpoint]));
  let isReused = true;
  const endpoints = slice.endpoints.map((endpoint) => {
    const shared = reuseValue(byAddress.get(firstAddress(endpoint)), endpoint);
    isReused &&= shared === endpoint;
    return shared;
  });
  return isReused ? slice : { ...slice, endpoints };
}

function firstAddress({ addresses: { v4, v6 } }: Endpoint): string | undefined {
  return v4[0] ?? v6[0];
}
