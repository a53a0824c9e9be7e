import createHasher from "xxhash-wasm";

const { h64Raw } = await createHasher();

/** Returns XXH64 with seed 0, the hash of KPNG's paths and Hash fields. Source: KPNG `serde.go`, cespare/xxhash. */
export function hashBytes(bytes: Uint8Array): bigint {
  return h64Raw(bytes);
}

/** Formats a hash in lower-case hex without leading zeros, as Go's `strconv.FormatUint(hash, 16)`. */
export function formatHash(hash: bigint): string {
  return hash.toString(16);
}

const encoder = new TextEncoder();

/** Returns the hash of a text in UTF-8; see {@link hashBytes}. */
export function hashText(text: string): bigint {
  return hashBytes(encoder.encode(text));
}
