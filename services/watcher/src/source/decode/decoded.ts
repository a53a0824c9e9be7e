import { isRecord } from "@kpng/model/is-record.ts";
import type { z } from "zod";

/** Result of decoding an object from the API server or a file. */
export type Decoded<T> =
  | {
      readonly kind: "ok";
      readonly value: T;
      readonly notes: readonly string[];
      /** Invalid parts, which `value` does not contain. The rest of the object is as if they were absent. */
      readonly skipped: readonly FieldProblem[];
    }
  /** Valid, but not needed by any proxy. */
  | { readonly kind: "skip"; readonly note: string }
  | ({ readonly kind: "bad" } & FieldProblem);

/** Path of a field in an object: `["spec", "ports", 0, "port"]`. */
export type FieldPath = readonly (string | number)[];

/** An invalid field of an object. */
export interface FieldProblem {
  readonly path: FieldPath;
  /** Text for people, with the invalid value. */
  readonly problem: string;
}

/** Returns "ok" with the value, notes and the invalid parts that were skipped. */
export function ok<T>(
  value: T,
  notes: readonly string[],
  skipped: readonly FieldProblem[] = [],
): Extract<Decoded<T>, { readonly kind: "ok" }> {
  return { kind: "ok", value, notes, skipped };
}

/** Returns "bad" with the first problem of a schema. */
export function bad(error: z.ZodError): { readonly kind: "bad" } & FieldProblem {
  const [first] = problemsOf(error);
  return { kind: "bad", path: first?.path ?? [], problem: first?.problem ?? "invalid object" };
}

/** Returns all problems of a schema. Each unknown key of a strict object is a separate problem. */
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

/** Formats a value as JSON, cut to 80 characters. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/**
 * Parses an object with a schema, and skips its invalid parts as kube-proxy does: the rest is served.
 *
 * `parts` are the fields that may be missing, e.g. `spec.ports.*.targetPort`, where `*` is an entry of an array. For
 * each invalid field, the innermost part that contains it is removed and reported once. A problem outside all parts
 * makes the whole object "bad".
 *
 * Pure. *Cost:* one parse of a valid object, two of an object with invalid parts.
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

/** Result of {@link parseParts}. `skipped`: a problem for each part that was removed. */
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
  const keepStep = (step: string | number): boolean => !(byStep.get(step) ?? []).some((path) => path.length === 1);
  const inner = (step: string | number, child: unknown): unknown => {
    const deeper = byStep.get(step)?.map((path) => path.slice(1));
    return deeper === undefined ? child : without(child, deeper);
  };
  if (Array.isArray(value)) {
    return value.flatMap((child: unknown, index) => (keepStep(index) ? [inner(index, child)] : []));
  }
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, child]) => (keepStep(name) ? [[name, inner(name, child)]] : [])),
  );
}
