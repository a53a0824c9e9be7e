import type { ElementBytes, ElementValue } from "../layout/elements.ts";
import { acceptPolicy, attribute, dormantFlag, hookNames, mapFlag } from "./constants.ts";
import { forEachAttribute } from "./messages.ts";

/** Names of the chains and sets of a table. */
export interface TableObjects {
  readonly chains: readonly string[];
  /**
   * Hook and policy of each base chain, as nft writes them; none if the table is dormant, because then no packet passes
   * its chains. *Shape:* `type nat hook prerouting priority -100; policy accept;`.
   */
  readonly hooks: ReadonlyMap<string, string>;
  readonly sets: readonly { readonly kind: "set" | "map"; readonly name: string }[];
}

/** Decodes a message that describes a table. */
export function readTable(bytes: Buffer): { readonly table: string; readonly isDormant: boolean } {
  let [table, isDormant] = ["", false];
  forEachAttribute(bytes, (type, value) => {
    if (type === attribute.table.name) table = readText(value);
    else if (type === attribute.table.flags) isDormant = (value.readUInt32BE(0) & dormantFlag) !== 0;
  });
  return { table, isDormant };
}

/** Decodes a message that describes a chain. `hook` is that of {@link TableObjects}; undefined unless it is a base chain. */
export function readChain(bytes: Buffer): {
  readonly table: string;
  readonly name: string;
  readonly hook: string | undefined;
} {
  const names = { table: "", name: "" };
  let [kind, at, policy] = ["", "", ""];
  forEachAttribute(bytes, (type, value) => {
    if (type === attribute.chain.table) names.table = readText(value);
    else if (type === attribute.chain.name) names.name = readText(value);
    else if (type === attribute.chain.type) kind = readText(value);
    else if (type === attribute.chain.hook) at = readHook(value);
    else if (type === attribute.chain.policy) policy = value.readUInt32BE(0) === acceptPolicy ? "accept" : "drop";
  });
  return { ...names, hook: at === "" ? undefined : `type ${kind} ${at}; policy ${policy};` };
}

function readHook(bytes: Buffer): string {
  let [name, priority] = ["", 0];
  forEachAttribute(bytes, (type, value) => {
    if (type === attribute.hook.number) name = hookNames[value.readUInt32BE(0)] ?? "";
    else if (type === attribute.hook.priority) priority = value.readInt32BE(0);
  });
  return `hook ${name} priority ${priority}`;
}

/** Decodes a message that describes a set or map. */
export function readSet(bytes: Buffer): TableObjects["sets"][number] & { readonly table: string } {
  const names = { table: "", name: "" };
  let isMap = false;
  forEachAttribute(bytes, (type, value) => {
    if (type === attribute.set.table) names.table = readText(value);
    else if (type === attribute.set.name) names.name = readText(value);
    else if (type === attribute.set.flags) isMap = (value.readUInt32BE(0) & mapFlag) !== 0;
  });
  return { ...names, kind: isMap ? "map" : "set" };
}

/**
 * Calls `take` with each element of a message. `value` is the element's data: a value, the name of the chain that a
 * verdict leads to, or "" if it has none.
 */
export function readElementList(bytes: Buffer, take: (key: ElementBytes, value: ElementValue) => void): void {
  forEachAttribute(bytes, (type, list) => {
    if (type !== attribute.elementList.elements) return;
    forEachAttribute(list, (itemType, item) => {
      if (itemType !== attribute.list.item) return;
      let [key, value] = ["", ""];
      forEachAttribute(item, (part, content) => {
        if (part === attribute.element.key) key = readData(content);
        else if (part === attribute.element.data) value = readData(content);
      });
      take(key, value);
    });
  });
}

/** Decodes the data of a key or of an element. */
function readData(bytes: Buffer): ElementValue {
  let value = "";
  forEachAttribute(bytes, (type, content) => {
    if (type === attribute.data.value) value = content.toString("latin1");
    else {
      forEachAttribute(content, (verdictType, chain) => {
        if (verdictType === attribute.verdict.chain) value = readText(chain);
      });
    }
  });
  return value;
}

/**
 * Decodes a message that describes a rule. `text` contains neither the rule's handle nor the numbers of anonymous sets,
 * because these differ each time the same rule is added.
 */
export function readRule(bytes: Buffer): { readonly table: string; readonly chain: string; readonly text: string } {
  const names = { table: "", chain: "" };
  const texts: string[] = [];
  forEachAttribute(bytes, (type, value) => {
    if (type === attribute.rule.table) names.table = readText(value);
    else if (type === attribute.rule.chain) names.chain = readText(value);
    else if (type === attribute.rule.expressions) {
      forEachAttribute(value, (_type, item) => {
        forEachAttribute(item, (part, content) => {
          if (part === attribute.expression.name) texts.push(readText(content));
          else texts.push(withoutAnonymousSet(content));
        });
      });
    }
  });
  return { ...names, text: texts.join(" ") };
}

/** Formats the attributes of an expression, without the name of an anonymous set (which a "lookup" contains). */
function withoutAnonymousSet(bytes: Buffer): string {
  const parts: string[] = [];
  forEachAttribute(bytes, (type, value) => {
    const text = value.toString("latin1");
    parts.push(`${type}=${/^__(?:set|map)\d/.test(text) ? "" : text}`);
  });
  return parts.join(" ");
}

/** Decodes a NUL-terminated string. */
export function readText(bytes: Buffer): string {
  return bytes.toString("latin1", 0, bytes.length - 1);
}
