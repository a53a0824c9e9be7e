import createHasher from "xxhash-wasm";

const { h64Raw } = await createHasher();

/** XXH64 with seed 0: the hash in KPNG's paths and Hash fields. Source: cespare/xxhash, as in kpng `serde.go`. */
export function hashBytes(bytes: Uint8Array): bigint {
  return h64Raw(bytes);
}

/** Lower-case hex without leading zeros, as Go's `strconv.FormatUint(hash, 16)`. */
export function formatHash(hash: bigint): string {
  return hash.toString(16);
}

const encoder = new TextEncoder();

export function hashText(text: string): bigint {
  return hashBytes(encoder.encode(text));
}
