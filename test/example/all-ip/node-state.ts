/** An endpoint of a Service as a test gives it: its address, and what is not usual about it. */
export interface EndpointLine {
  readonly address: string;
  /** On this node unless said otherwise. */
  readonly isElsewhere?: boolean | undefined;
  /** May serve traffic from outside unless said otherwise. */
  readonly isInternalOnly?: boolean | undefined;
}

/** One line of a node's state, as kpng-callout writes it, for a headless Service with external IPs. */
export function serviceLine(
  name: string,
  externalIps: readonly string[],
  endpoints: readonly (string | EndpointLine)[],
): string {
  return JSON.stringify({
    Service: {
      Namespace: "default",
      Name: name,
      Type: "ClusterIP",
      IPs: { ClusterIPs: {}, ExternalIPs: byFamily(externalIps), Headless: true },
      SessionAffinity: null,
    },
    Endpoints: endpoints.length === 0 ? null : endpoints.map(endpointObject),
  });
}

function endpointObject(endpoint: string | EndpointLine): unknown {
  const line: EndpointLine = typeof endpoint === "string" ? { address: endpoint } : endpoint;
  return {
    IPs: byFamily([line.address]),
    ...(line.isElsewhere === true ? {} : { Local: true }),
    Scopes: { Internal: true, ...(line.isInternalOnly === true ? {} : { External: true }) },
  };
}

/** Anything without a colon counts as IPv4, so that a test can put any text into an address. */
function byFamily(addresses: readonly string[]): unknown {
  const v4 = addresses.filter((address) => !address.includes(":"));
  const v6 = addresses.filter((address) => address.includes(":"));
  return { ...(v4.length === 0 ? {} : { V4: v4 }), ...(v6.length === 0 ? {} : { V6: v6 }) };
}
