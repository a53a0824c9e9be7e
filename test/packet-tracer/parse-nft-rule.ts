import { asList, asNumber, asObject, asText, bareElement, type Json, kindOf, NotUnderstood } from "./nft-json.ts";
import { type NamedSets, namedSet, parseKey, parseMatch } from "./nft-match.ts";
import type { Match, Rule, Target } from "./rule.ts";

/**
 * Translates one rule of nft into rules of the tracer: one for each alternative, e.g. for each element of a verdict
 * map.
 *
 * The alternatives exclude each other, because keys of a set are unique, so that at most one of the rules matches. A
 * random choice becomes rules that may match, and a last one that does.
 *
 * `parseNftRuleset` calls it for each rule. Separate from it, because that file knows tables and chains, this one a
 * rule.
 *
 * A rule with a statement that the tracer does not know gets a match `notUnderstood`: a packet that reaches it cannot
 * be traced, because skipping the rule would be a guess.
 */
export function parseNftRule(statements: readonly Json[], sets: NamedSets): readonly Rule[] {
  let alternatives: readonly (readonly Match[])[] = [[]];
  let affinitySeconds: number | undefined;
  let mark: Target = { kind: "none" };
  const text = JSON.stringify(statements);
  const toRules = (choices: readonly Choice[]): readonly Rule[] =>
    alternatives.flatMap((matches) =>
      choices.map(({ more = [], target, note }) => ({
        matches: [...matches, ...more],
        target,
        ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
        text: note === undefined ? text : `${text} ${note}`,
      })),
    );
  try {
    for (const statement of statements) {
      const [kind, content] = kindOf(statement);
      if (kind === "match") {
        const condition = parseMatch(content, sets);
        affinitySeconds = condition.affinitySeconds ?? affinitySeconds;
        alternatives = alternatives.flatMap((matches) => condition.alternatives.map((more) => [...matches, ...more]));
      } else if (kind === "mangle") mark = parseMark(content);
      else if (!isWithoutEffect(kind, content)) return toRules(parseEnd(kind, content, sets));
    }
    return toRules([{ target: mark }]);
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    const why = `${error.message} in ${text}`;
    return toRules([{ more: [{ kind: "notUnderstood", why }], target: { kind: "none" } }]);
  }
}

/** One of the ways in which a rule may end. */
interface Choice {
  readonly more?: readonly Match[] | undefined;
  readonly target: Target;
  /** Added to the text of the rule. */
  readonly note?: string | undefined;
}

/** Whether a statement does not affect the packet: counters, and the list of clients that affinity remembers. */
function isWithoutEffect(kind: string, content: Json): boolean {
  return (
    kind === "counter" || (kind === "set" && (asObject(content).op === "update" || asObject(content).op === "add"))
  );
}

/** Translates the statement that ends a rule; a change of the mark before it no longer matters to the packet. */
function parseEnd(kind: string, content: Json, sets: NamedSets): readonly Choice[] {
  if (kind === "vmap") return parseVerdictMap(content, sets);
  if (kind === "dnat") return parseDnat(content);
  if (kind === "masquerade") return [{ target: { kind } }];
  return [{ target: parseVerdict({ [kind]: content }) }];
}

function parseVerdict(verdict: Json | undefined): Target {
  const [kind, content] = kindOf(verdict);
  switch (kind) {
    case "accept":
    case "drop":
    case "reject":
    case "return":
      return { kind };
    case "jump":
    case "goto":
      return { kind: "jump", chain: asText(asObject(content).target), isGoto: kind === "goto" };
    default:
      throw new NotUnderstood(verdict);
  }
}

function parseVerdictMap(content: Json, sets: NamedSets): readonly Choice[] {
  const { key, data } = asObject(content);
  const elements = typeof data === "string" ? namedSet(data, sets).elements : asList(kindOf(data)[1]);
  if (isRandom(key)) return choose(elements.map((element) => parseVerdict(asList(element)[1])));
  return elements.map((element) => {
    const [value = null, verdict] = asList(element);
    return { more: parseKey(key, bareElement(value)), target: parseVerdict(verdict), note: JSON.stringify(value) };
  });
}

function parseDnat(content: Json): readonly Choice[] {
  const { addr, port } = asObject(content);
  if (typeof addr === "string") {
    return [{ target: { kind: "dnat", address: addr, port: port === undefined ? undefined : asNumber(port) } }];
  }
  const { key, data } = asObject(asObject(addr).map);
  if (!isRandom(key)) throw new NotUnderstood(content);
  const endpoints = asList(kindOf(data)[1]).map((element): Target => {
    const [address, endpointPort] = asList(kindOf(asList(element)[1])[1]);
    return { kind: "dnat", address: asText(address), port: asNumber(endpointPort) };
  });
  return choose(endpoints);
}

function isRandom(key: Json | undefined): boolean {
  const [kind, content] = kindOf(key);
  return kind === "numgen" && asObject(content).mode === "random";
}

/** Returns one choice for each target; all but the last may be skipped. */
function choose(targets: readonly Target[]): readonly Choice[] {
  return targets.map((target, at) => (at < targets.length - 1 ? { more: [{ kind: "maybe" }], target } : { target }));
}

/** Translates `meta mark set meta mark | BITS`, and the same with `^`. */
function parseMark(content: Json): Target {
  const { key, value } = asObject(content);
  const [operator, operands] = kindOf(value);
  const [left, bits] = asList(operands);
  const isMark = (operand: Json | undefined) => JSON.stringify(operand) === '{"meta":{"key":"mark"}}';
  if (!isMark(key) || !isMark(left)) throw new NotUnderstood(content);
  if (operator === "|") return { kind: "mark", value: asNumber(bits), mask: asNumber(bits) };
  if (operator === "^") return { kind: "mark", value: asNumber(bits), mask: 0 };
  throw new NotUnderstood(content);
}
