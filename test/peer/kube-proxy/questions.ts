import { type Family, parseAddress } from "@kpng/model/address.ts";
import type { KubeObject } from "../../cluster/api-client.ts";
import { type Client, clientAddress, clients, nodeAddress } from "./world.ts";

/** Connection attempt of a client at a node. */
export interface Question {
  /** *Shape:* `namespace/service client address:port/protocol`. */
  readonly key: string;
  readonly client: Client;
  readonly family: Family;
  readonly from: string;
  /** "node" for a node port. */
  readonly to: string;
  readonly port: number;
  readonly protocol: string;
}

interface RawService extends KubeObject {
  readonly spec: {
    readonly clusterIPs?: readonly string[];
    readonly externalIPs?: readonly string[];
    readonly ports?: readonly { readonly port: number; readonly nodePort?: number; readonly protocol: string }[];
  };
  readonly status?: { readonly loadBalancer?: { readonly ingress?: readonly { readonly ip?: string }[] } };
}

/**
 * Returns all connection attempts for a Service of the API server: to each of its addresses and node ports, from every
 * kind of client, with or without endpoints.
 */
export function askAll(object: KubeObject, nodeName: string): Question[] {
  const { metadata, spec, status } = object as RawService;
  const ingress = (status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) => (ip === undefined ? [] : [ip]));
  const texts = new Set([...(spec.clusterIPs ?? []), ...(spec.externalIPs ?? []), ...ingress]);
  const addresses = [...texts].flatMap((text) => parseAddress(text) ?? []);
  return (spec.ports ?? []).flatMap(({ port, nodePort, protocol }) => {
    const targets = addresses.map(({ address, family }) => ({ to: address, port, family }));
    if (nodePort) for (const family of ["v4", "v6"] as const) targets.push({ to: "node", port: nodePort, family });
    return targets.flatMap((target) =>
      clients.map((client) => ({
        ...target,
        key: `${metadata.namespace}/${metadata.name} ${client} → ${target.to} (${target.family}) ${target.port}/${protocol}`,
        client,
        from: clientAddress(client, target.family, nodeName),
        protocol: protocol.toLowerCase(),
      })),
    );
  });
}

/** Returns the destination address of a question's packet. */
export function destination({ to, family }: Question, nodeName: string): string {
  return to === "node" ? nodeAddress(nodeName, family) : to;
}
