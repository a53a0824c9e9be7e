/**
 * True if two values of plain data (objects, arrays, texts, numbers, booleans) are equal in all depths.
 *
 * The order of an object's fields does not matter; a field that is undefined equals one that is absent.
 */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return (
      Array.isArray(a) &&
      Array.isArray(b) &&
      a.length === b.length &&
      a.every((item, index) => sameValue(item, b[index]))
    );
  }
  const left = new Map(Object.entries(a).filter(isDefined));
  const right = Object.entries(b).filter(isDefined);
  return (
    left.size === right.length && right.every(([name, value]) => left.has(name) && sameValue(left.get(name), value))
  );
}

function isDefined([, value]: [string, unknown]): boolean {
  return value !== undefined;
}
