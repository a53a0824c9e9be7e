import { type AddressSet, type Family, parseAddress, parseCidr } from "@kpng/model/address.ts";
import { z } from "zod";
import { show } from "./decoded.ts";

/** Longest name that Kubernetes knows (a DNS subdomain), in characters. */
const maxNameLength = 253;

/**
 * True for a text that can be part of a key: 1 to 253 characters, none of them a slash, `|`, white space or a control
 * character. Kubernetes is stricter; keys and paths on the wire need only this.
 */
export function isName(text: string): boolean {
  return text.length <= maxNameLength && /^[^\s/|\p{Cc}]+$/u.test(text);
}

const nameRule = `1 to ${maxNameLength} characters, no slash, "|", white space or control character`;

/** A name that must be there. */
export const nameField = z.string().refine(isName, { error: ({ input }) => `${show(input)} is no name: ${nameRule}` });

/** A name, or "" for none. */
export const nameOrEmptyField = z.string().refine((text) => text === "" || isName(text), {
  error: ({ input }) => `${show(input)} is no name: ${nameRule}, or empty`,
});

/** Names of labels or annotations with their values. */
export const stringMapField = z.record(z.string(), z.string());

/** An address with its family, canonical. */
export const addressField = z.string().transform((text, context) => {
  const parsed = parseAddress(text);
  if (parsed !== undefined) return parsed;
  context.issues.push({ code: "custom", input: text, message: `${show(text)} is no IP address` });
  return z.NEVER;
});

/** A CIDR, canonical; white space around it is cut off, as kube-proxy does. */
export const cidrField = z.string().transform((text, context) => {
  const parsed = parseCidr(text.trim());
  if (parsed !== undefined) return parsed.cidr;
  context.issues.push({ code: "custom", input: text, message: `${show(text)} is no CIDR` });
  return z.NEVER;
});

/** A whole number within limits. */
export function numberField(min: number, max: number): z.ZodType<number> {
  return z.number().refine((value) => Number.isInteger(value) && value >= min && value <= max, {
    error: ({ input }) => `${show(input)} is no whole number from ${min} to ${max}`,
  });
}

/** A port that must be there. */
export const portField = numberField(1, 65_535);

/** A port, or 0 for none. */
export const portOrZeroField = numberField(0, 65_535);

/** Seconds of session affinity. Source: Kubernetes' validation of a Service. */
export const affinitySecondsField = numberField(1, 86_400);

/** One of some words. */
export function wordField<const Word extends string>(...words: readonly [Word, ...Word[]]): z.ZodType<Word> {
  return z.enum(words, { error: ({ input }) => `${show(input)} is none of ${words.join(", ")}` });
}

/** Sorts addresses into families; duplicates are dropped, order is kept. */
export function toSet(addresses: readonly { readonly family: Family; readonly address: string }[]): AddressSet {
  const set = { v4: new Set<string>(), v6: new Set<string>() };
  for (const { family, address } of addresses) set[family].add(address);
  return { v4: [...set.v4], v6: [...set.v6] };
}

/** The entries whose names pass the filter. */
export function keep(
  entries: Readonly<Record<string, string>> | null | undefined,
  filter: (name: string) => boolean,
): Readonly<Record<string, string>> {
  // fromEntries makes even "__proto__" an ordinary property.
  return Object.fromEntries(Object.entries(entries ?? {}).filter(([name]) => filter(name)));
}
