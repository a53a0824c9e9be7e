import { isIPv4 } from "node:net";

/** Addresses of a connection, as the PROXY protocol tells them to the endpoint. All of one family. */
interface ConnectionAddresses {
  readonly clientAddress: string;
  readonly clientPort: number;
  /** Where the client connected to. */
  readonly address: string;
  readonly port: number;
}

const signature = Buffer.from("0d0a0d0a000d0a515549540a", "hex");

/**
 * Returns the header that precedes the data of a connection: version 1 is a line of text, version 2 binary.
 * `Connection` writes it before anything else. Separate from it, because this file only knows the format.
 *
 * *Source:* haproxy.org, proxy-protocol.txt.
 */
export function proxyHeader(version: "v1" | "v2", addresses: ConnectionAddresses): Buffer {
  const { clientAddress, clientPort, address, port } = addresses;
  const isV4 = isIPv4(clientAddress);
  if (version === "v1") {
    return Buffer.from(
      `PROXY ${isV4 ? "TCP4" : "TCP6"} ${clientAddress} ${address} ${clientPort} ${port}\r\n`,
      "latin1",
    );
  }
  const body = Buffer.concat([
    addressBytes(clientAddress),
    addressBytes(address),
    portBytes(clientPort),
    portBytes(port),
  ]);
  // Version 2, command PROXY; family and TCP.
  const fixed = Buffer.from([0x21, isV4 ? 0x11 : 0x21, body.length >> 8, body.length & 0xff]);
  return Buffer.concat([signature, fixed, body]);
}

function portBytes(port: number): Buffer {
  return Buffer.from([port >> 8, port & 0xff]);
}

function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split(".").map(Number));
  const [head = "", tail] = address.split("::");
  const words = (text: string): string[] => (text === "" ? [] : text.split(":"));
  const [left, right] = [words(head), words(tail ?? "")];
  const zeros = tail === undefined ? [] : Array.from({ length: 8 - left.length - right.length }, () => "0");
  return Buffer.from([...left, ...zeros, ...right].map((word) => word.padStart(4, "0")).join(""), "hex");
}
