/** Endpoint of a Service: its address, with optional properties. */
interface EndpointLine {
  readonly address: string;
  /** Default: on this node. */
  readonly isElsewhere?: boolean | undefined;
  /** Default: also serves traffic from outside. */
  readonly isInternalOnly?: boolean | undefined;
}

/** Returns one line of a node's state in the format of kpng-callout, for a headless Service with external IPs. */
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

/** Groups addresses by family. Any text without a colon counts as IPv4, so that tests can use invalid addresses. */
function byFamily(addresses: readonly string[]): unknown {
  const v4 = addresses.filter((address) => !address.includes(":"));
  const v6 = addresses.filter((address) => address.includes(":"));
  return { ...(v4.length === 0 ? {} : { V4: v4 }), ...(v6.length === 0 ? {} : { V6: v6 }) };
}
