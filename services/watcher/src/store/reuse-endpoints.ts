import { isDeepStrictEqual } from "node:util";
import type { Endpoint, EndpointSlice } from "@kpng/model/endpoint.ts";

/**
 * Returns a slice whose endpoints are the objects of the slice before wherever they are equal to one: of the hundred that
 * an update brings again, one has changed, and what was made of the others is still right.
 *
 * Pure; O(endpoints).
 */
export function withKeptEndpoints(before: EndpointSlice, slice: EndpointSlice): EndpointSlice {
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
