/**
 * Returns true if two values of plain data (objects, arrays, strings, numbers, booleans) are deeply equal. `diffViews`,
 * `StagedView` and `ViewState` share it to compare Services, endpoints and nodes.
 *
 * The order of an object's fields does not matter, and an undefined field equals an absent one, unlike for
 * `isDeepStrictEqual` of Node.js.
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
