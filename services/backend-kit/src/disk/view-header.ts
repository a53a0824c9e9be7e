import type { Position } from "@kpng/model/forward/position.ts";

/**
 * Description of a saved view in the first line of its file (`view-file.ts`): for which node, from when. The header has
 * a file of its own, because `readSavedPosition` decodes it without the view behind it.
 */
export interface ViewHeader {
  readonly nodeName: string;
  readonly serviceProxyName: string;
  /** When the view was last known to be current, in milliseconds since 1970. */
  readonly currentAtMs: number;
  /** Boot of the machine in which the view was saved; see `readBootId`. "" if unknown. */
  readonly bootId: string;
  /** Position of the view, or a later one; undefined if unknown. */
  readonly position?: Position | undefined;
}

/**
 * Format of the file. A program with another version ignores the file, which is replaced as soon as a watcher answers.
 */
export const viewFormat = { format: "kpng-view", version: 1 } as const;

/** Decodes the first line of a saved view. Errors: a plain Error that says what is wrong with the file. */
export function decodeHeader(json: string): ViewHeader {
  const value: unknown = JSON.parse(json);
  if (typeof value !== "object" || value === null) throw new Error("the first line is not an object");
  const fields = new Map<string, unknown>(Object.entries(value));
  if (fields.get("format") !== viewFormat.format) throw new Error("the file does not contain a view");
  if (fields.get("version") !== viewFormat.version)
    throw new Error(`the file has version ${fields.get("version")}, expected ${viewFormat.version}`);
  const text = (name: string): string => {
    const field = fields.get(name);
    if (typeof field !== "string") throw new Error(`field ${name} is not a string`);
    return field;
  };
  const currentAtMs = fields.get("currentAtMs");
  if (typeof currentAtMs !== "number") throw new Error("field currentAtMs is not a number");
  return {
    nodeName: text("nodeName"),
    serviceProxyName: text("serviceProxyName"),
    currentAtMs,
    bootId: text("bootId"),
    position: parsePosition(fields.get("position")),
  };
}

/** Formats a position for the header: JSON has no integers of 64 bits. *Shape:* `kube:9f… 100 205 198`. */
export function formatPosition({ source, services, slices, nodes }: Position): string {
  return [source, services, slices, nodes].join(" ");
}

function parsePosition(field: unknown): Position | undefined {
  if (typeof field !== "string" || !/^\S+( \d+){3}$/.test(field)) return undefined;
  const [source = "", ...numbers] = field.split(" ");
  const [services = 0n, slices = 0n, nodes = 0n] = numbers.map(BigInt);
  return { source, services, slices, nodes, current: { services, slices, nodes } };
}

/** Properties that a saved view must have to be used. */
export interface ExpectedHeader {
  readonly nodeName: string;
  readonly serviceProxyName: string;
  readonly nowMs: number;
  readonly maxAgeMs: number;
}

/** Returns why a saved view must not be used; undefined if it may be. Pure. */
export function refuseHeader(header: ViewHeader, expected: ExpectedHeader): string | undefined {
  if (header.nodeName !== expected.nodeName) return `it is for node ${header.nodeName}, not ${expected.nodeName}`;
  if (header.serviceProxyName !== expected.serviceProxyName) {
    return `it is for service-proxy-name "${header.serviceProxyName}", not "${expected.serviceProxyName}"`;
  }
  const ageMs = expected.nowMs - header.currentAtMs;
  // After the clock was set back the age is unknown; the view is used, because there is no other.
  if (ageMs <= expected.maxAgeMs) return undefined;
  return `it is ${Math.round(ageMs / 60_000)} minutes old, and the limit is ${Math.round(expected.maxAgeMs / 60_000)}`;
}
