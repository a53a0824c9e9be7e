import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** Span as received by a collector, with the attributes of its process. */
export interface ReceivedSpan {
  /** Hexadecimal. */
  readonly traceId: string;
  /** Hexadecimal. */
  readonly spanId: string;
  /** Hexadecimal; "" for the first span of a trace. */
  readonly parentId: string;
  readonly name: string;
  /** 1 internal, 2 server, 3 client, 4 producer, 5 consumer. */
  readonly kind: number;
  /** Milliseconds since 1970. */
  readonly startMs: number;
  /** Milliseconds since 1970. */
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** Links to other traces. */
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  /** "" unless the status is an error. */
  readonly error: string;
  /** Attributes of the process. */
  readonly resource: Readonly<Record<string, unknown>>;
}

/** Field of a message: its number and its encoded value. */
type Field = readonly [number, Uint8Array | bigint];

/**
 * Reads an ExportTraceServiceRequest.
 *
 * Source: opentelemetry-proto, `collector/trace/v1/trace_service.proto` and `trace/v1/trace.proto`.
 */
export function decodeSpans(request: Uint8Array): readonly ReceivedSpan[] {
  return messages(request, 1).flatMap((resourceSpans) => {
    const resource = attributesOf(messages(resourceSpans, 1)[0] ?? new Uint8Array(), 1);
    const spans = messages(resourceSpans, 2).flatMap((scopeSpans) => messages(scopeSpans, 2));
    return spans.map((span) => decodeSpan(span, resource));
  });
}

function decodeSpan(span: Uint8Array, resource: ReceivedSpan["resource"]): ReceivedSpan {
  const [status = new Uint8Array()] = messages(span, 15);
  return {
    traceId: hex(span, 1),
    spanId: hex(span, 2),
    parentId: hex(span, 4),
    name: text(span, 5),
    kind: Number(number(span, 6)),
    startMs: Number(number(span, 7)) / 1e6,
    endMs: Number(number(span, 8)) / 1e6,
    attributes: attributesOf(span, 9),
    links: messages(span, 13).map((link) => ({ traceId: hex(link, 1), spanId: hex(link, 2) })),
    error: number(status, 3) === 2n ? text(status, 2) : "",
    resource,
  };
}

/** Returns the KeyValue messages of a field. */
function attributesOf(message: Uint8Array, at: number): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    messages(message, at).map((pair) => [text(pair, 1), anyValue(messages(pair, 2)[0] ?? new Uint8Array())]),
  );
}

function anyValue(value: Uint8Array): unknown {
  for (const [at, content] of fields(value)) {
    if (typeof content === "bigint") {
      if (at === 2) return content === 1n;
      if (at === 3) return Number(content);
      if (at === 4) return new Float64Array(new BigUint64Array([content]).buffer)[0];
    } else {
      if (at === 1) return new TextDecoder().decode(content);
      if (at === 5) return messages(content, 1).map(anyValue);
    }
  }
  return undefined;
}

function fields(message: Uint8Array): readonly Field[] {
  const reader = new BinaryReader(message);
  const all: Field[] = [];
  while (reader.pos < reader.len) {
    const [at, type] = reader.tag();
    if (type === WireType.LengthDelimited) all.push([at, reader.bytes()]);
    else if (type === WireType.Varint) all.push([at, BigInt(reader.uint64())]);
    else if (type === WireType.Bit64) all.push([at, BigInt(reader.fixed64())]);
    else reader.skip(type, at);
  }
  return all;
}

function messages(message: Uint8Array, at: number): readonly Uint8Array[] {
  return fields(message).flatMap(([number, value]) => (number === at && typeof value !== "bigint" ? [value] : []));
}

function number(message: Uint8Array, at: number): bigint {
  const value = fields(message).findLast(([number]) => number === at)?.[1];
  return typeof value === "bigint" ? value : 0n;
}

function text(message: Uint8Array, at: number): string {
  return new TextDecoder().decode(messages(message, at).at(-1));
}

function hex(message: Uint8Array, at: number): string {
  return Buffer.from(messages(message, at).at(-1) ?? []).toString("hex");
}
