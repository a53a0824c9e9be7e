import createHasher from "xxhash-wasm";

const { h64Raw } = await createHasher();

/**
 * Returns the XXH64 hash, with seed 0, of some bytes.
 *
 * KPNG puts it into the paths of endpoints and the fields Hash of its messages (ServiceInfo, EndpointInfo, NodeInfo).
 * Watcher and backends also use it as a fast hash, for example to compare their views when a stream resumes.
 *
 * Source: KPNG `serde.go`, cespare/xxhash.
 *
 * A file of its own, because loading the hash function is asynchronous.
 */
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
