import { type AddressSet, type Family, parseAddress, parseCidr } from "@kpng/model/address.ts";
import { z } from "zod";
import { show } from "./decoded.ts";

// Fields from which the schemas of objects and of KPNG's state files are built.

/** Longest name in Kubernetes (a DNS subdomain), in characters. */
const maxNameLength = 253;

/**
 * True if text can be part of a key: 1 to 253 characters, without slashes, `|`, white space and control characters.
 * Kubernetes is stricter, but this is what our keys and the paths on the wire need.
 */
export function isName(text: string): boolean {
  return text.length <= maxNameLength && /^[^\s/|\p{Cc}]+$/u.test(text);
}

const nameRule = `1 to ${maxNameLength} characters without "/", "|", white space and control characters`;

/** A required name. */
export const nameField = z
  .string()
  .refine(isName, { error: ({ input }) => `${show(input)} is not a valid name: ${nameRule}` });

/** A name, or "" for none. */
export const nameOrEmptyField = z.string().refine((text) => text === "" || isName(text), {
  error: ({ input }) => `${show(input)} is not a valid name: ${nameRule}, or empty`,
});

/** Labels or annotations by name. */
export const stringMapField = z.record(z.string(), z.string());

/** An IP address, parsed to its canonical form and family. */
export const addressField = z.string().transform((text, context) => {
  const parsed = parseAddress(text);
  if (parsed !== undefined) return parsed;
  context.issues.push({ code: "custom", input: text, message: `${show(text)} is not an IP address` });
  return z.NEVER;
});

/** A CIDR, parsed to its canonical form. Surrounding white space is ignored, as in kube-proxy. */
export const cidrField = z.string().transform((text, context) => {
  const parsed = parseCidr(text.trim());
  if (parsed !== undefined) return parsed.cidr;
  context.issues.push({ code: "custom", input: text, message: `${show(text)} is not a CIDR` });
  return z.NEVER;
});

/** A time as the API server writes it, in seconds since 1970. *Shape:* `2024-05-01T12:00:00Z`. */
export const timeField = z.string().transform((text, context) => {
  const ms = Date.parse(text);
  if (!Number.isNaN(ms)) return Math.floor(ms / 1000);
  context.issues.push({ code: "custom", input: text, message: `${show(text)} is not a time` });
  return z.NEVER;
});

/** An integer from `min` to `max`. */
export function numberField(min: number, max: number): z.ZodType<number> {
  return z.number().refine((value) => Number.isInteger(value) && value >= min && value <= max, {
    error: ({ input }) => `${show(input)} is not an integer from ${min} to ${max}`,
  });
}

/** A required port number. */
export const portField = numberField(1, 65_535);

/** A port number, or 0 for none. */
export const portOrZeroField = numberField(0, 65_535);

/** Seconds of session affinity. Source: Kubernetes' validation of a Service. */
export const affinitySecondsField = numberField(1, 86_400);

/** One of the given words. */
export function wordField<const Word extends string>(...words: readonly [Word, ...Word[]]): z.ZodType<Word> {
  return z.enum(words, { error: ({ input }) => `${show(input)} is not one of ${words.join(", ")}` });
}

/** Groups addresses by family, in order and without duplicates. */
export function toSet(addresses: readonly { readonly family: Family; readonly address: string }[]): AddressSet {
  const set = { v4: new Set<string>(), v6: new Set<string>() };
  for (const { family, address } of addresses) set[family].add(address);
  return { v4: [...set.v4], v6: [...set.v6] };
}

/** Returns the labels or annotations whose names pass the filter. */
export function keep(
  entries: Readonly<Record<string, string>> | null | undefined,
  filter: (name: string) => boolean,
): Readonly<Record<string, string>> {
  // fromEntries makes even "__proto__" an ordinary property.
  return Object.fromEntries(Object.entries(entries ?? {}).filter(([name]) => filter(name)));
}

/**
 * Schema of the metadata fields that the decoders read. The namespace defaults to "default", because manifests may omit
 * it.
 */
export const metadataShape = z.object({
  name: nameField,
  namespace: nameField.nullish().transform((namespace) => namespace ?? "default"),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  deletionTimestamp: z.string().nullish(),
});
