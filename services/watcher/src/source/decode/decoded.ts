import type { z } from "zod";

/**
 * Result of decoding an object from the API server or a file. `decodeService`, `decodeSlice` and `decodeNode` return
 * it; the sources `kube` and `file` log or reject what is invalid. Separate, because all of them share the type.
 */
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
