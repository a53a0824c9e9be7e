import type { Family } from "@kpng/model/address.ts";
import { data, expression, listItem, metaPriority, register } from "./constants.ts";
import type { NetlinkWriter } from "./netlink-writer.ts";

/** One expression of a rule: its name, and a function that writes its attributes. */
type Expression = readonly [name: string, writeAttributes: (writer: NetlinkWriter) => void];

/**
 * Writes the expressions of the rule `meta priority set meta priority and MASK`. `pickChainAddition` in `skeleton.ts`
 * uses the rules of this file in pick chains, the chains that choose an endpoint at random.
 *
 * All other rules are text for the program nft. These are encoded here because nft 1.0.6 cannot add them to a table
 * that exists: it fails with "conflicting protocols specified" for a map whose values have `th dport`. Source of the
 * encoding: the output of `nft --debug=netlink` for the same rules, and linux/netfilter/nf_tables.h for the numbers of
 * attributes.
 */
export function writeMaskRule(writer: NetlinkWriter, mask: number): void {
  writeExpressions(writer, [
    loadPriority,
    [
      "bitwise",
      (to) => {
        to.uint32(1, register.first);
        to.uint32(2, register.first);
        to.uint32(3, 4);
        to.nested(4, () => to.value(data.value, hostNumber(mask)));
        to.nested(5, () => to.value(data.value, hostNumber(0)));
      },
    ],
    [
      "meta",
      (to) => {
        to.uint32(2, metaPriority);
        to.uint32(3, register.first);
      },
    ],
  ]);
}

/** Writes `dnat ip addr . port to meta priority . numgen random mod MODULUS map @MAP`. */
export function writePickRule(writer: NetlinkWriter, family: Family, modulus: number, map: string): void {
  const portRegister = family === "v4" ? register.second : 2;
  writeExpressions(writer, [
    loadPriority,
    [
      "numgen",
      (to) => {
        to.uint32(1, register.second);
        to.uint32(2, modulus);
        to.uint32(3, 1);
        to.uint32(4, 0);
      },
    ],
    [
      "lookup",
      (to) => {
        to.text(1, map);
        to.uint32(2, register.first);
        to.uint32(3, register.first);
      },
    ],
    [
      "nat",
      (to) => {
        to.uint32(1, 1);
        to.uint32(2, family === "v4" ? 2 : 10);
        to.uint32(3, register.first);
        to.uint32(5, portRegister);
      },
    ],
  ]);
}

const loadPriority: Expression = [
  "meta",
  (to) => {
    to.uint32(1, register.first);
    to.uint32(2, metaPriority);
  },
];

function writeExpressions(writer: NetlinkWriter, expressions: readonly Expression[]): void {
  for (const [name, writeAttributes] of expressions) {
    writer.nested(listItem, () => {
      writer.text(expression.name, name);
      writer.nested(expression.data, () => writeAttributes(writer));
    });
  }
}

function hostNumber(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
