import { type AddressSet, type Family, parseAddress, parseCidr } from "@kpng/model/address.ts";
import { isRecord } from "@kpng/model/narrowing.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { z } from "zod";

/** Result of decoding an object from the API server or a file. */
export type Decoded<T> =
  | {
      readonly kind: "ok";
      readonly value: T;
      /** What was ignored although it is valid. Only the source of files shows these notes. */
      readonly notes: readonly string[];
      /**
       * Invalid parts, which `value` does not contain. The rest of the object is decoded as if these parts were absent.
       */
      readonly skipped: readonly FieldProblem[];
    }
  /** The object is valid, but no proxy needs it. */
  | { readonly kind: "skip"; readonly note: string }
  | ({ readonly kind: "bad" } & FieldProblem);

/** Path of a field in an object: `["spec", "ports", 0, "port"]`. */
export type FieldPath = readonly (string | number)[];

export interface FieldProblem {
  readonly path: FieldPath;
  /** Human-readable description, including the invalid value. */
  readonly problem: string;
}

export function ok<T>(
  value: T,
  notes: readonly string[],
  skipped: readonly FieldProblem[] = [],
): Extract<Decoded<T>, { readonly kind: "ok" }> {
  return { kind: "ok", value, notes, skipped };
}

export function bad(error: z.ZodError): { readonly kind: "bad" } & FieldProblem {
  const [first] = problemsOf(error);
  return { kind: "bad", path: first?.path ?? [], problem: first?.problem ?? "invalid object" };
}

/** Returns all problems that a schema found. Each unknown key of a strict object is a separate problem. */
export function problemsOf(error: z.ZodError): readonly FieldProblem[] {
  return error.issues.flatMap((issue) => {
    const path = issue.path.map((step) => (typeof step === "symbol" ? String(step) : step));
    return issue.code === "unrecognized_keys"
      ? issue.keys.map((key) => ({ path: [...path, key], problem: `unknown key ${show(key)}` }))
      : [{ path, problem: issue.message }];
  });
}

/** Formats a path. *Shape:* `spec.ports[0].port`; "" for the object itself. */
export function showPath(path: FieldPath): string {
  return path
    .map((step, index) => {
      if (typeof step === "number") return `[${step}]`;
      if (!/^[\w-]+$/.test(step)) return `[${show(step)}]`;
      return index === 0 ? step : `.${step}`;
    })
    .join("");
}

/** Formats a value for messages, with at most 80 characters. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/**
 * Parses an object with a schema, and removes its invalid parts. `parts` are the fields that may be missing, e.g.
 * `spec.ports.*.targetPort`, where `*` is an entry of an array. For each invalid field, the innermost part that
 * contains it is removed and reported once. A problem outside all parts makes the whole object "bad".
 *
 * Pure. *Cost:* objects with invalid parts are parsed a second time.
 */
export function parseParts<T>(schema: z.ZodType<T>, parts: readonly string[], object: unknown): ParsedParts<T> {
  const first = schema.safeParse(object);
  if (first.success) return { kind: "parsed", data: first.data, skipped: [] };
  const patterns = parts.map((part) => part.split("."));
  const removed = new Map<string, FieldProblem & { readonly part: FieldPath }>();
  for (const { path, problem } of problemsOf(first.error)) {
    const part = innermostPart(path, patterns);
    if (part === undefined) return bad(first.error);
    const key = JSON.stringify(part);
    if (!removed.has(key)) removed.set(key, { path, problem, part });
  }
  const skipped = [...removed.values()];
  const removedPaths = skipped.map(({ part }) => part);
  const second = schema.safeParse(without(object, removedPaths));
  if (!second.success) return bad(second.error);
  return { kind: "parsed", data: second.data, skipped: skipped.map(({ path, problem }) => ({ path, problem })) };
}

type ParsedParts<T> =
  | { readonly kind: "parsed"; readonly data: T; readonly skipped: readonly FieldProblem[] }
  | ({ readonly kind: "bad" } & FieldProblem);

function innermostPart(path: FieldPath, patterns: readonly (readonly string[])[]): FieldPath | undefined {
  const lengths = patterns
    .filter((pattern) => pattern.every((step, index) => step === (step === "*" ? starOf(path[index]) : path[index])))
    .map((pattern) => pattern.length);
  return lengths.length === 0 ? undefined : path.slice(0, Math.max(...lengths));
}

function starOf(step: string | number | undefined): string | undefined {
  return typeof step === "number" ? "*" : undefined;
}

/** Returns a copy of `value` without the given paths. Unchanged branches are shared. */
function without(value: unknown, paths: readonly FieldPath[]): unknown {
  const byStep = Map.groupBy(paths, (path) => path[0]);
  const stays = (step: string | number): boolean => !(byStep.get(step) ?? []).some((path) => path.length === 1);
  const inner = (step: string | number, child: unknown): unknown => {
    const deeper = byStep.get(step)?.map((path) => path.slice(1));
    return deeper === undefined ? child : without(child, deeper);
  };
  if (Array.isArray(value)) {
    return value.flatMap((child: unknown, index) => (stays(index) ? [inner(index, child)] : []));
  }
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, child]) => (stays(name) ? [[name, inner(name, child)]] : [])),
  );
}

/** Maximum length of a name in Kubernetes (a DNS subdomain), in characters. */
const maxNameLength = 253;

/** True if a string can be part of our keys and of paths on the wire. Kubernetes' own rules are stricter. */
export function isName(text: string): boolean {
  return text.length <= maxNameLength && /^[^\s/|\p{Cc}]+$/u.test(text);
}

const nameRule = `is not a valid name: 1 to ${maxNameLength} characters without "/", "|", white space and control characters`;

export const nameField = z.string().refine(isName, { error: ({ input }) => `${show(input)} ${nameRule}` });

export const nameOrEmptyField = z.string().refine((text) => text === "" || isName(text), {
  error: ({ input }) => `${show(input)} ${nameRule}, or empty`,
});

export const stringMapField = z.record(z.string(), z.string());

/** Returns a field whose text `parse` turns into a value; undefined makes the field invalid. */
function parsedField<T>(what: string, parse: (text: string) => T | undefined) {
  return z.string().transform((text, context): T => {
    const parsed = parse(text);
    if (parsed !== undefined) return parsed;
    context.issues.push({ code: "custom", input: text, message: `${show(text)} is not ${what}` });
    return z.NEVER;
  });
}

/** An IP address, parsed to its canonical form and family. */
export const addressField = parsedField("an IP address", parseAddress);

/** An {@link addressField}, or one of these words. */
export function addressOrField<const Word extends string>(...words: readonly [Word, ...Word[]]) {
  return z.union([z.literal(words), addressField], {
    error: ({ input }) => (typeof input === "string" ? `${show(input)} is not an IP address` : undefined),
  });
}

/** A CIDR, parsed to its canonical form. Surrounding white space is ignored, as in kube-proxy. */
export const cidrField = parsedField("a CIDR", (text) => parseCidr(text.trim())?.cidr);

/** A time as the API server writes it, parsed to seconds since 1970. *Shape:* `2024-05-01T12:00:00Z`. */
export const timeField = parsedField("a time", (text) => {
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : Math.floor(ms / 1_000);
});

export function numberField(min: number, max: number): z.ZodType<number> {
  return z.number().refine((value) => Number.isInteger(value) && value >= min && value <= max, {
    error: ({ input }) => `${show(input)} is not an integer from ${min} to ${max}`,
  });
}

export const portField = numberField(1, 65_535);

export const portOrZeroField = numberField(0, 65_535);

/** Seconds of session affinity. Source: Kubernetes' validation of a Service. */
export const affinitySecondsField = numberField(1, 86_400);

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
  // fromEntries creates an ordinary property even for "__proto__".
  return Object.fromEntries(Object.entries(entries ?? {}).filter(([name]) => filter(name)));
}

/** The metadata that the decoders read. Manifests may omit the namespace. */
export const metadataShape = z.object({
  name: nameField,
  namespace: nameField.nullish().transform((namespace) => namespace ?? "default"),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  deletionTimestamp: z.string().nullish(),
});

/** Selects labels and annotations. All others are dropped, and their changes do not create a revision. */
export interface DecodeOptions {
  readonly serviceLabels: NameFilter;
  readonly serviceAnnotations: NameFilter;
  readonly nodeLabels: NameFilter;
  readonly nodeAnnotations: NameFilter;
}

type NameFilter = (name: string) => boolean;

/**
 * Names of labels and annotations (`--with-node-labels`), as globs: `*` matches any characters, and `?` matches one
 * character. Default none, but {@link defaultNodeLabels} for the labels of nodes.
 */
export type DecodeGlobs = { readonly [K in keyof DecodeOptions]?: readonly string[] | undefined };

/** Default of --with-node-labels. Source: KPNG, `kube2store.go`. */
export const defaultNodeLabels: readonly string[] = [
  "kubernetes.io/hostname",
  "topology.kubernetes.io/zone",
  "topology.kubernetes.io/region",
];

/** Compiles the globs into filters. Errors: BAD_OPTION for an unsupported glob. */
export function makeDecodeOptions(globs: DecodeGlobs = {}): DecodeOptions {
  return {
    serviceLabels: compileGlobs(globs.serviceLabels),
    serviceAnnotations: compileGlobs(globs.serviceAnnotations),
    nodeLabels: compileGlobs(globs.nodeLabels ?? defaultNodeLabels),
    nodeAnnotations: compileGlobs(globs.nodeAnnotations),
  };
}

function compileGlobs(globs: readonly string[] = []): NameFilter {
  const patterns = globs.map((glob) => {
    // KPNG's globs also have classes, alternatives and escapes, which are not supported.
    if (/[[\]{}\\]/.test(glob)) {
      throw new ProcessError("BAD_OPTION", `"${glob}" is not a glob of * and ?; repeat the option for alternatives`);
    }
    return new RegExp(`^${RegExp.escape(glob).replaceAll("\\*", ".*").replaceAll("\\?", ".")}$`, "su");
  });
  return (name) => patterns.some((pattern) => pattern.test(name));
}
