import type { Family } from "@kpng/model/address.ts";
import { numberBytes } from "@kpng/model/byte-text.ts";
import type { DataKind, ElementBytes, ElementValue } from "../layout/elements.ts";
import {
  attribute,
  commentRecord,
  flags,
  messageType,
  metaPriority,
  nftables,
  nftablesSubsystem,
  register,
  verdictCode,
} from "./constants.ts";
import { NetlinkWriter } from "./messages.ts";

/** One element of a set or map. */
export interface SetElement {
  /** The fields of the key, each padded to a multiple of 4 bytes. */
  readonly key: ElementBytes;
  /** Data of the kind that {@link ElementChange.data} names. Default "". */
  readonly value?: ElementValue | undefined;
  /** Shown by `nft list`; at most 127 ASCII characters. */
  readonly comment?: string | undefined;
}

/** Elements that can be read several times, and that may be made only then. */
export interface ElementList extends Iterable<SetElement> {
  readonly length: number;
}

/** One step of a transaction: elements that one set gains or loses. */
export interface ElementChange {
  readonly set: string;
  readonly kind: "put" | "delete";
  /** Kind of data of the elements of a put. Default: none. */
  readonly data?: DataKind | undefined;
  /** To replace the data of a key, delete it first: the kernel refuses a second put with other data. */
  readonly elements: ElementList;
}

/** One step of a transaction: a chain, which is created if it does not exist, gets exactly these rules. */
export interface ChainAddition {
  readonly kind: "chain";
  readonly chain: string;
  /** Each writes the expressions of one rule; see {@link writePickRule}. */
  readonly rules: readonly ((writer: NetlinkWriter) => void)[];
}

/** One step of a transaction. */
export type BatchStep = ElementChange | ChainAddition;

/** Which table a transaction changes. */
export interface TableId {
  readonly family: Family;
  readonly name: string;
}

/** An encoded transaction. */
export interface EncodedBatch {
  readonly bytes: Buffer;
  /**
   * The step of each message, for error messages. The first message has sequence number 1; the kernel acknowledges the
   * last one if the whole transaction succeeds.
   */
  readonly steps: readonly BatchStep[];
}

/** Maximum size of a list of elements, in bytes. The attribute that contains it can hold 65 535. */
const maxListBytes = 60_000;

/**
 * Encodes one transaction, of which either all steps take effect or none.
 *
 * With `generation`, the kernel refuses the transaction (ERESTART) unless the ruleset of this network namespace still
 * has that generation. Steps without elements are skipped. Pure.
 */
export function encodeBatch(
  table: TableId,
  steps: readonly BatchStep[],
  generation?: number | undefined,
): EncodedBatch {
  const writer = new NetlinkWriter(steps.reduce((sum, step) => sum + stepBytes(step), 1_024));
  const family = table.family === "v4" ? 2 : 10;
  const messages = steps.flatMap((step) => messagesOf(table, step).map((message) => ({ step, ...message })));
  const marker = { flags: flags.request, sequence: 0, family: 0, resourceId: nftablesSubsystem } as const;
  writer.message({ ...marker, type: messageType.batchBegin }, () => {
    if (generation !== undefined) writer.uint32(attribute.batch.generation, generation);
  });
  let sequence = 0;
  for (const message of messages) {
    sequence += 1;
    const isLast = sequence === messages.length;
    const header = { ...message, flags: flags.request | message.flags | (isLast ? flags.ack : 0), sequence, family };
    writer.message(header, () => message.write(writer));
  }
  writer.message({ ...marker, type: messageType.batchEnd, sequence: sequence + 1 });
  return { bytes: writer.bytes, steps: messages.map(({ step }) => step) };
}

/** Returns an upper bound for the size of a step in a batch, in bytes. */
export function stepBytes(step: BatchStep): number {
  if (step.kind === "chain") return 2_048;
  let bytes = 0;
  for (const element of step.elements) bytes += elementBytes(element);
  return bytes + 256 * Math.ceil((bytes + 1) / (maxListBytes / 2));
}

/** One message of a transaction, before it has a sequence number. */
interface Message {
  readonly type: number;
  readonly flags: number;
  readonly write: (writer: NetlinkWriter) => void;
}

function messagesOf(table: TableId, step: BatchStep): readonly Message[] {
  if (step.kind === "chain") return chainMessages(table, step);
  const isPut = step.kind === "put";
  return [...splitElements(step.elements, maxListBytes)].map((elements) => ({
    type: isPut ? nftables.newElement : nftables.deleteElement,
    // NLM_F_EXCL is not set, so that putting an element that exists with the same data is not an error. This happens
    // because a list that is read while the kernel resizes a hash table may lack some elements, which are then put
    // again.
    flags: isPut ? flags.create : 0,
    write: (writer) => {
      writer.text(attribute.elementList.table, table.name);
      writer.text(attribute.elementList.set, step.set);
      writer.nested(attribute.elementList.elements, () => {
        for (const one of elements) writeElement(writer, one, step);
      });
    },
  }));
}

function chainMessages(table: TableId, { chain, rules }: ChainAddition): readonly Message[] {
  const writeRuleChain = (writer: NetlinkWriter): void => {
    writer.text(attribute.rule.table, table.name);
    writer.text(attribute.rule.chain, chain);
  };
  return [
    {
      type: nftables.newChain,
      flags: flags.create,
      write: (writer) => {
        writer.text(attribute.chain.table, table.name);
        writer.text(attribute.chain.name, chain);
      },
    },
    // Without a rule handle, this message deletes all rules of the chain.
    { type: nftables.deleteRule, flags: 0, write: writeRuleChain },
    ...rules.map(
      (writeRule): Message => ({
        type: nftables.newRule,
        flags: flags.create | flags.append,
        write: (writer) => {
          writeRuleChain(writer);
          writer.nested(attribute.rule.expressions, () => writeRule(writer));
        },
      }),
    ),
  ];
}

/** Returns an upper bound for the size of an element in a message, in bytes. */
function elementBytes({ key, value = "", comment }: SetElement): number {
  return 40 + key.length + value.length + (comment === undefined ? 0 : 12 + comment.length);
}

/**
 * Divides elements into lists that take at most `limit` bytes in a message; an element that is longer gets its own
 * list. Pure.
 */
export function* splitElements(
  elements: Iterable<SetElement>,
  limit: number,
): Generator<readonly SetElement[], void, void> {
  let [part, bytes]: [SetElement[], number] = [[], 0];
  for (const element of elements) {
    const size = elementBytes(element);
    if (bytes + size > limit && part.length > 0) {
      yield part;
      [part, bytes] = [[], 0];
    }
    part.push(element);
    bytes += size;
  }
  if (part.length > 0) yield part;
}

function writeElement(
  writer: NetlinkWriter,
  { key, value = "", comment }: SetElement,
  { kind, data = "none" }: ElementChange,
): void {
  writer.nested(attribute.list.item, () => {
    writer.nested(attribute.element.key, () => writer.value(attribute.data.value, key));
    // To delete an element, its key is enough.
    if (kind === "delete") return;
    if (data !== "none") writer.nested(attribute.element.data, () => writeData(writer, data, value));
    if (comment !== undefined) writer.value(attribute.element.userData, commentBytes(comment));
  });
}

function writeData(writer: NetlinkWriter, kind: Exclude<DataKind, "none">, value: ElementValue): void {
  if (kind === "value") writer.value(attribute.data.value, value);
  else {
    writer.nested(attribute.data.verdict, () => {
      writer.uint32(attribute.verdict.code, verdictCode[kind]);
      writer.text(attribute.verdict.chain, value);
    });
  }
}

/** A record of libnftnl's user data: u8 type, u8 length, NUL-terminated text. */
function commentBytes(comment: string): ElementBytes {
  return `${String.fromCharCode(commentRecord, comment.length + 1)}${comment}\0`;
}

/** One expression of a rule: its name, and a function that writes its attributes. */
type Expression = readonly [name: string, writeAttributes: (writer: NetlinkWriter) => void];

/**
 * Writes the expressions of the rule `meta priority set meta priority and MASK`, which leaves only the set id in the
 * packet's priority: the first field of a slot's key. It begins each pick chain, which chooses an endpoint at random.
 *
 * All other rules are written as text for the program nft. The rules of pick chains are encoded here because nft 1.0.6
 * cannot add them to an existing table: it fails with "conflicting protocols specified" for a map whose values contain
 * `th dport`. Source of the encoding: the output of `nft --debug=netlink` for the same rules, and
 * linux/netfilter/nf_tables.h for the numbers of attributes.
 */
export function writeMaskRule(writer: NetlinkWriter, mask: number): void {
  writeExpressions(writer, [
    loadPriority,
    [
      "bitwise",
      (to) => {
        // Source and destination register, length; then the operands of AND and of XOR.
        to.uint32(1, register.first);
        to.uint32(2, register.first);
        to.uint32(3, 4);
        to.nested(4, () => to.value(attribute.data.value, numberBytes(mask)));
        to.nested(5, () => to.value(attribute.data.value, numberBytes(0)));
      },
    ],
    [
      "meta",
      (to) => {
        // Key and source register.
        to.uint32(2, metaPriority);
        to.uint32(3, register.first);
      },
    ],
  ]);
}

/** Writes `dnat ip addr . port to meta priority . numgen random mod MODULUS map @MAP`. */
export function writePickRule(writer: NetlinkWriter, family: Family, modulus: number, map: string): void {
  // An IPv6 address fills the first register, so its port is in the next one.
  const portRegister = family === "v4" ? register.second : 2;
  writeExpressions(writer, [
    loadPriority,
    [
      "numgen",
      (to) => {
        // Destination register, modulus, type (1: random) and offset.
        to.uint32(1, register.second);
        to.uint32(2, modulus);
        to.uint32(3, 1);
        to.uint32(4, 0);
      },
    ],
    [
      "lookup",
      (to) => {
        // Set, source and destination register.
        to.text(1, map);
        to.uint32(2, register.first);
        to.uint32(3, register.first);
      },
    ],
    [
      "nat",
      (to) => {
        // Type (1: destination NAT), address family, and the registers of address and port.
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
    // Destination register and key.
    to.uint32(1, register.first);
    to.uint32(2, metaPriority);
  },
];

function writeExpressions(writer: NetlinkWriter, expressions: readonly Expression[]): void {
  for (const [name, writeAttributes] of expressions) {
    writer.nested(attribute.list.item, () => {
      writer.text(attribute.expression.name, name);
      writer.nested(attribute.expression.data, () => writeAttributes(writer));
    });
  }
}
