/** What is said of a saved view before it is read. */
export interface ViewHeader {
  readonly nodeName: string;
  readonly serviceProxyName: string;
  /** When the view was last known to be current, in milliseconds since 1970. */
  readonly currentAtMs: number;
  /** Of the run of the kernel in which it was saved; "" if unknown. */
  readonly bootId: string;
}

/** A reader of another version ignores the file: the next watcher that answers replaces it. */
export const viewFormat = { format: "kpng-view", version: 1 } as const;

/** Errors: Error with what is wrong. */
export function decodeHeader(json: string): ViewHeader {
  const value: unknown = JSON.parse(json);
  if (typeof value !== "object" || value === null) throw new Error("its first line is no object");
  const fields = new Map<string, unknown>(Object.entries(value));
  if (fields.get("format") !== viewFormat.format) throw new Error("it is of another program");
  if (fields.get("version") !== viewFormat.version) throw new Error(`it is of version ${fields.get("version")}`);
  const text = (name: string): string => {
    const field = fields.get(name);
    if (typeof field !== "string") throw new Error(`its field ${name} is no text`);
    return field;
  };
  const currentAtMs = fields.get("currentAtMs");
  if (typeof currentAtMs !== "number") throw new Error("its field currentAtMs is no number");
  return {
    nodeName: text("nodeName"),
    serviceProxyName: text("serviceProxyName"),
    currentAtMs,
    bootId: text("bootId"),
  };
}

export interface HeaderWanted {
  readonly nodeName: string;
  readonly serviceProxyName: string;
  readonly nowMs: number;
  readonly maxAgeMs: number;
}

/** Returns why a saved view must not be used; undefined if it may. Pure. */
export function refuseHeader(header: ViewHeader, wanted: HeaderWanted): string | undefined {
  if (header.nodeName !== wanted.nodeName) return `it is of node ${header.nodeName}, this is ${wanted.nodeName}`;
  if (header.serviceProxyName !== wanted.serviceProxyName) {
    return `it is of service-proxy-name "${header.serviceProxyName}", this is "${wanted.serviceProxyName}"`;
  }
  const ageMs = wanted.nowMs - header.currentAtMs;
  // A clock that was set back says nothing of the age: old or not, it is the only view there is.
  if (ageMs <= wanted.maxAgeMs) return undefined;
  return `it is ${Math.round(ageMs / 60_000)} minutes old, more than the ${Math.round(wanted.maxAgeMs / 60_000)} allowed`;
}
