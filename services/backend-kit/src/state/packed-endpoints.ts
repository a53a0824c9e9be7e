import { type ByteText, numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import { compareText, lowerBound } from "@kpng/model/collections.ts";
import type { ViewEndpoint } from "@kpng/model/node-view.ts";
import { decodeEndpoint } from "@kpng/model/wire/endpoint-message.ts";

interface PackedEndpoint {
  /** Unique within the Service; see `ViewEndpoint.key`. */
  readonly key: string;
  /** The lengths of key and message as two 32-bit numbers, then the key and the message (`localv1.Endpoint`). */
  readonly record: ByteText;
  readonly messageStart: number;
}

const headerLength = 8;

/** Endpoints per chunk. A change copies one chunk and the list of chunks; both are short, even with 10 000 endpoints. */
const chunkSize = 32;

/**
 * The endpoints of one Service, ascending by key. Immutable; a changed copy shares its unchanged chunks with the original.
 *
 * *Memory:* 8 bytes more than the key and the message of each endpoint, a quarter of what decoded objects take.
 */
export class PackedEndpoints {
  static readonly none = new PackedEndpoints([]);

  /** The records of the endpoints in each chunk; none is empty. */
  readonly #chunks: readonly ByteText[];

  private constructor(chunks: readonly ByteText[]) {
    this.#chunks = chunks;
  }

  keys(): readonly string[] {
    return this.#chunks.flatMap((chunk) => listEndpoints(chunk).map(({ key }) => key));
  }

  /** Decodes the endpoints; chunks that also were in the last decoding are not decoded again. */
  decode(): readonly ViewEndpoint[] {
    if (lastDecoded.packed !== this) {
      const known = lastDecoded.chunks;
      const chunks = new Map(this.#chunks.map((chunk) => [chunk, known.get(chunk) ?? decodeChunk(chunk)]));
      lastDecoded = { packed: this, chunks, endpoints: [...chunks.values()].flat() };
    }
    return lastDecoded.endpoints;
  }

  /** Returns a copy with these messages by key; undefined removes the endpoint. */
  with(changes: ReadonlyMap<string, ByteText | undefined>): PackedEndpoints {
    const chunks = this.#chunks.length === 0 ? [""] : this.#chunks;
    const starts = chunks.length === 1 ? [] : chunks.map((chunk) => endpointAt(chunk, 0).key);
    // The last chunk that begins at or before the key, or the first one.
    const chunkOf = (key: string): number =>
      Math.max(0, lowerBound(starts.length, (at) => compareText(starts[at] ?? "", key) <= 0) - 1);
    const byChunk = Map.groupBy(changes, ([key]) => chunkOf(key));
    return new PackedEndpoints(
      chunks.flatMap((chunk, index) => {
        const ofChunk = byChunk.get(index);
        return ofChunk === undefined ? [chunk] : changeChunk(chunk, new Map(ofChunk));
      }),
    );
  }

  /** Returns the endpoints in which `before` and this differ. O(chunks + endpoints in chunks that differ). */
  differencesFrom(before: PackedEndpoints): readonly EndpointDifference[] {
    if (before === this) return [];
    const [oldChunks, newChunks] = [new Set(before.#chunks), new Set(this.#chunks)];
    const endpointsOf = (chunks: ReadonlySet<ByteText>): PackedEndpoint[] => [...chunks].flatMap(listEndpoints);
    const old = new Map(endpointsOf(oldChunks.difference(newChunks)).map((endpoint) => [endpoint.key, endpoint]));
    const differences: EndpointDifference[] = [];
    for (const endpoint of endpointsOf(newChunks.difference(oldChunks))) {
      const previous = old.get(endpoint.key);
      old.delete(endpoint.key);
      if (previous?.record === endpoint.record) continue;
      differences.push({ key: endpoint.key, before: previous && messageOf(previous), after: messageOf(endpoint) });
    }
    for (const endpoint of old.values()) {
      differences.push({ key: endpoint.key, before: messageOf(endpoint), after: undefined });
    }
    return differences;
  }
}

/** Caches the last decoding: a plan reads a Service several times, and most changes concern few of its endpoints. */
let lastDecoded: {
  readonly packed: PackedEndpoints;
  readonly chunks: ReadonlyMap<ByteText, readonly ViewEndpoint[]>;
  readonly endpoints: readonly ViewEndpoint[];
} = { packed: PackedEndpoints.none, chunks: new Map(), endpoints: [] };

/** Holds a chunk while it is decoded; grows to fit the longest. */
let scratch = Buffer.allocUnsafeSlow(16_384);

function decodeChunk(chunk: ByteText): readonly ViewEndpoint[] {
  if (scratch.length < chunk.length) scratch = Buffer.allocUnsafeSlow(chunk.length * 2);
  scratch.write(chunk, "latin1");
  let end = 0;
  return listEndpoints(chunk).map(({ key, record, messageStart }) => {
    const start = end;
    end += record.length;
    return decodeEndpoint(key, scratch, start + messageStart, end);
  });
}

function listEndpoints(chunk: ByteText): readonly PackedEndpoint[] {
  const endpoints: PackedEndpoint[] = [];
  for (let start = 0; start < chunk.length; start += endpoints.at(-1)?.record.length ?? 0) {
    endpoints.push(endpointAt(chunk, start));
  }
  return endpoints;
}

function endpointAt(chunk: ByteText, start: number): PackedEndpoint {
  const keyStart = start + headerLength;
  const messageStart = keyStart + readNumber(chunk, start);
  const end = messageStart + readNumber(chunk, start + 4);
  const key = fromByteText(chunk.slice(keyStart, messageStart));
  return { key, record: chunk.slice(start, end), messageStart: messageStart - start };
}

/** Returns the chunks that replace a chunk; none if no endpoint is left. */
function changeChunk(chunk: ByteText, changes: ReadonlyMap<string, ByteText | undefined>): readonly ByteText[] {
  const kept = listEndpoints(chunk).filter(({ key }) => !changes.has(key));
  const put = [...changes].flatMap(([key, message]) =>
    message === undefined ? [] : [{ key, record: makeRecord(toByteText(key), message) }],
  );
  const sorted = [...kept, ...put].sort((a, b) => compareText(a.key, b.key));
  const size = sorted.length <= 2 * chunkSize ? sorted.length : chunkSize;
  const chunks: ByteText[] = [];
  for (let start = 0; start < sorted.length; start += size) {
    const part = sorted.slice(start, start + size);
    const text = part.map(({ record }) => record).join("");
    // A single record is cut out of another chunk, which V8 would keep as long as the record.
    chunks.push(part.length === 1 ? Buffer.from(text, "latin1").toString("latin1") : text);
  }
  return chunks;
}

interface EndpointDifference {
  readonly key: string;
  /** The endpoint's message in each list; undefined if it is missing. */
  readonly before: Uint8Array | undefined;
  readonly after: Uint8Array | undefined;
}

function messageOf({ record, messageStart }: PackedEndpoint): Uint8Array {
  return Buffer.from(record.slice(messageStart), "latin1");
}

function makeRecord(key: ByteText, message: ByteText): ByteText {
  return `${numberBytes(key.length)}${numberBytes(message.length)}${key}${message}`;
}

// Names in Kubernetes are ASCII; others are kept as UTF-8.
const beyondAscii = /[^\0-\x7f]/;

function toByteText(text: string): ByteText {
  return beyondAscii.test(text) ? Buffer.from(text).toString("latin1") : text;
}

function fromByteText(bytes: ByteText): string {
  return beyondAscii.test(bytes) ? Buffer.from(bytes, "latin1").toString() : bytes;
}
