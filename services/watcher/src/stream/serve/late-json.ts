import { type ContextKey, createContextKey } from "@connectrpc/connect";
import type { universalResponseToNodeResponse } from "@connectrpc/connect-node";

/**
 * A field of a JSON response that its method encodes itself, in steps. The Connect library encodes the rest of the
 * message, in one step, and {@link addTo} puts the field behind it. Without it, a large response would keep the event
 * loop for as long as its encoding takes.
 *
 * `makeRequestHandler` makes one for each call with JSON, and a method finds it with {@link lateJsonKey}. Protobuf
 * needs none: an encoded field may be an unknown field of the response.
 */
export class LateJson {
  readonly #pieces: Uint8Array[] = [];

  /** Sets the field, as pieces of its JSON value. Call it at most once. */
  set(name: string, pieces: readonly string[]): void {
    this.#pieces.push(...[`,"${name}":`, ...pieces, "}"].map((piece) => Buffer.from(piece)));
  }

  /** Returns the answer with the field. The message must not be empty: a comma separates the field from the others. */
  addTo(answer: Answer): Answer {
    const { status, body, header } = answer;
    if (this.#pieces.length === 0 || status !== 200 || body === undefined) return answer;
    const bytes = this.#pieces.reduce((sum, { length }) => sum + length, -1);
    const length = header?.get("content-length");
    if (typeof length === "string") header?.set("content-length", String(Number(length) + bytes));
    const isEnveloped = header?.get("content-type") !== "application/json";
    return { ...answer, body: this.#withPieces(body, isEnveloped ? bytes : undefined) };
  }

  /** `addedBytes` are those that an envelope must count; undefined without envelopes. */
  async *#withPieces(body: AsyncIterable<Uint8Array>, addedBytes: number | undefined): AsyncIterable<Uint8Array> {
    let isMessage = true;
    for await (const chunk of body) {
      if (!isMessage) {
        yield chunk;
        continue;
      }
      isMessage = false;
      // The first chunk is the whole message, up to its "}".
      const head = Buffer.from(chunk.subarray(0, -1));
      if (addedBytes !== undefined) head.writeUInt32BE(head.readUInt32BE(1) + addedBytes, 1);
      yield head;
      yield* this.#pieces;
    }
  }
}

type Answer = Parameters<typeof universalResponseToNodeResponse>[0];

/** Context value for handlers; undefined for a response in protobuf. */
export const lateJsonKey: ContextKey<LateJson | undefined> = createContextKey<LateJson | undefined>(undefined, {
  description: "kpng late JSON",
});
