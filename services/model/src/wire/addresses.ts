import { isIP } from "node:net";
import { create } from "@bufbuild/protobuf";
import { type AddressSet, noAddresses, toAddressSet } from "../address.ts";
import { type IPSet, IPSetSchema } from "../gen/localv1/api_pb.ts";
import { compareText } from "../text-order.ts";
import { WireError } from "./wire-error.ts";

/**
 * Encodes a set of addresses, sorted bytewise as KPNG does. Returns undefined for undefined.
 *
 * The encoders of Services and of globals use it; `endpoint-bytes.ts`, which writes most of all addresses, has its own
 * faster code. A file of its own because several encoders and decoders need it.
 */
export function encodeAddresses(set: AddressSet | undefined): IPSet | undefined {
  if (set === undefined) return undefined;
  return create(IPSetSchema, { V4: [...set.v4].sort(compareText), V6: [...set.v6].sort(compareText) });
}

/**
 * Decodes a set of addresses to its canonical form. Returns undefined for undefined. IPv6 that `parseAddress` rejects is
 * left out: the API server may accept it and KPNG's watcher pass it on, and an error would end the stream. Errors:
 * WireError. The decoders of Services and endpoints call it.
 */
export function decodeAddresses(set: IPSet | undefined): AddressSet | undefined {
  if (set === undefined) return undefined;
  if (set.V4.length + set.V6.length === 0) return noAddresses;
  const decoded = toAddressSet([...set.V4, ...set.V6]);
  const invalid = decoded.invalid.filter((text) => isIP(text) === 0);
  if (invalid.length > 0) throw new WireError(`"${invalid.join('", "')}" is not an IP address`);
  return decoded.set;
}
