import type { z } from "zod";

/** Where in an object something is: `["spec", "ports", 0, "port"]`. */
export type FieldPath = readonly (string | number)[];

/** Something wrong in an object, and where. */
export interface FieldProblem {
  readonly path: FieldPath;
  /** A clause for people, with the offending value. */
  readonly problem: string;
}

/** What came of decoding an object. */
export type Decoded<T> =
  | { readonly kind: "ok"; readonly value: T; readonly notes: readonly string[] }
  /** Legal, but nothing that a proxy serves. */
  | { readonly kind: "skip"; readonly note: string }
  | ({ readonly kind: "bad" } & FieldProblem);

export function ok<T>(value: T, notes: readonly string[] = []): Decoded<T> {
  return { kind: "ok", value, notes };
}

/** The first of the problems that a schema found. */
export function bad(error: z.ZodError): Decoded<never> {
  const [first] = problemsOf(error);
  return { kind: "bad", path: first?.path ?? [], problem: first?.problem ?? "is no object of this kind" };
}

/** All problems that a schema found; each unknown key of a strict object is one of its own. */
export function problemsOf(error: z.ZodError): readonly FieldProblem[] {
  return error.issues.flatMap((issue) => {
    const path = issue.path.map((step) => (typeof step === "symbol" ? String(step) : step));
    return issue.code === "unrecognized_keys"
      ? issue.keys.map((key) => ({ path: [...path, key], problem: `unknown key ${show(key)}` }))
      : [{ path, problem: issue.message }];
  });
}

/** *Shape:* `spec.ports[0].port`; "" for the object itself. */
export function showPath(path: FieldPath): string {
  return path
    .map((step, index) => {
      if (typeof step === "number") return `[${step}]`;
      if (!/^[\w-]+$/.test(step)) return `[${show(step)}]`;
      return index === 0 ? step : `.${step}`;
    })
    .join("");
}

/** A value as JSON, cut to 80 characters. */
export function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
