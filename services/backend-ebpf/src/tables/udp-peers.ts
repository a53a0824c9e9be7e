import { addressBytes, readAddress } from "../layout/keys.ts";

/** Where the endpoint begins in the key of a member, and its length: an address and a port. */
const [endpointAt, endpointBytes] = [8, 18];

/** Returns the endpoint in the key of a member, as text of a byte for each character. `FamilyTables` collects them. */
export function endpointText(member: string): string {
  return member.slice(endpointAt, endpointAt + endpointBytes);
}

/** Returns the address and port of {@link endpointText}, which is how `StaleSockets` knows endpoints. */
export function endpointOfMember(endpoint: string): { readonly address: string; readonly port: number } {
  const bytes = Buffer.from(endpoint, "latin1");
  return { address: readAddress(bytes), port: bytes.readUInt16BE(16) };
}

/**
 * Returns the endpoints that the sockets in a table such as /proc/net/udp6 are connected to, as {@link endpointText};
 * IPv4 addresses of IPv6 sockets as IPv4. `StaleSockets` compares them with endpoints that have gone. Separate from it,
 * because it is pure.
 *
 * *Shape of a line:* `12: 0101010A:C350 0B01010A:1F90 01 …`: own address, the other, state. Addresses are words of 4
 * bytes, each with the bytes of little-endian processors in reverse.
 */
export function parseConnectedPeers(table: string): readonly string[] {
  const lines = table.matchAll(/^\s*\d+: \S+ ([0-9A-F]+):([0-9A-F]{4}) 01 /gm);
  return [...lines].map(([, words = "", port = ""]) => {
    const bytes = Buffer.from(words, "hex").swap32();
    const address = bytes.length === 4 ? addressBytes(bytes.join(".")) : bytes;
    return `${address.toString("latin1")}${Buffer.from(port, "hex").toString("latin1")}`;
  });
}
