import type { Family } from "@kpng/model/address.ts";
import { numberBytes, readNumber } from "@kpng/model/byte-text.ts";
import ipaddr from "ipaddr.js";
import {
  addressLength,
  type ElementBytes,
  type ElementValue,
  type Field,
  type FrontendKind,
  frontendMaps,
  packSet,
  type SharedSet,
  setLayouts,
  unpackSet,
} from "./elements.ts";

/** Names of protocols as nft prints them. */
export const protocolNames: Readonly<Record<number, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };

/**
 * Formats an element as nft prints it, or its key alone if `value` is undefined. *Shape:* `frontends { 10.96.0.1 . tcp
 * . 80 : 4000:200a }`.
 *
 * Errors: RangeError for too few bytes.
 */
export function formatElement(
  family: Family,
  set: SharedSet,
  key: ElementBytes,
  value: ElementValue | undefined,
): string {
  const layout = setLayouts[set];
  const left = formatFields(family, layout.key, key);
  if (value === undefined || layout.data === "none") return `${set} { ${left} }`;
  const right = layout.value === undefined ? `${layout.data} ${value}` : formatFields(family, layout.value, value);
  return `${set} { ${left} : ${right} }`;
}

const masquerades: Readonly<Record<FrontendKind, string>> = {
  plain: "not masqueraded",
  masqueradeUnlessPod: "masqueraded unless a pod sends",
  masquerade: "masqueraded",
  local: "policy Local: for pods and the node",
};

/**
 * Explains the value of a frontend, for `listRules`. *Shape:* `: endpoints at 0:2000, 10 of them, masqueraded`; "" for
 * elements of other sets.
 */
export function describeFrontend(set: SharedSet, value: ElementValue): string {
  if (!frontendMaps.has(set)) return "";
  const { kind, id, count } = unpackSet(readNumber(value));
  const slots = formatField("number", numberBytes(packSet({ kind: "plain", id, count: 0 })));
  return `: endpoints at ${slots}, ${count === 0 ? "with affinity" : `${count} of them`}, ${masquerades[kind]}`;
}

function formatFields(family: Family, fields: readonly Field[], bytes: ElementBytes): string {
  let at = 0;
  const take = (length: number): ElementBytes => {
    if (at + length > bytes.length) throw new RangeError(`${bytes.length} bytes are too few for ${fields.join(" . ")}`);
    at += length;
    return bytes.slice(at - length, at);
  };
  return fields.map((field) => formatField(field, take(field === "address" ? addressLength(family) : 4))).join(" . ");
}

function formatField(field: Field, bytes: ElementBytes): string {
  const byte = (at: number): number => bytes.charCodeAt(at);
  switch (field) {
    case "address":
      return ipaddr.fromByteArray([...bytes].map((_, at) => byte(at))).toString();
    case "protocol":
      return protocolNames[byte(0)] ?? String(byte(0));
    case "port":
      return String(byte(0) * 256 + byte(1));
    case "index":
      return String(readNumber(bytes));
    case "number":
      return formatNumber(bytes);
  }
}

/** Formats a number as nft prints values of the type of `meta priority`: two hexadecimal halves. */
export function formatNumber(bytes: ElementBytes): string {
  const value = readNumber(bytes);
  return `${Math.floor(value / 65_536).toString(16)}:${(value % 65_536).toString(16)}`;
}
