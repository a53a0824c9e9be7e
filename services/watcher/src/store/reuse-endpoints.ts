import { isDeepStrictEqual } from "node:util";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";

/**
 * Returns `slice`, a new version of `before`, with the endpoint objects of `before` wherever they are equal. An update
 * of a slice repeats up to a hundred endpoints of which usually one changed. Values that were derived from the others
 * stay valid.
 *
 * Pure; O(endpoints).
 */
export function reuseEndpoints(before: EndpointSlice, slice: EndpointSlice): EndpointSlice {
  const byAddress = new Map(before.endpoints.map((endpoint) => [firstAddress(endpoint), endpoint]));
  const endpoints = slice.endpoints.map((endpoint) => {
    const old = byAddress.get(firstAddress(endpoint));
    return old !== undefined && isDeepStrictEqual(old, endpoint) ? old : endpoint;
  });
  return { ...slice, endpoints };
}

function firstAddress({ addresses: { v4, v6 } }: Endpoint): string | undefined {
  return v4[0] ?? v6[0];
}
