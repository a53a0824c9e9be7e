/**
 * Compares two texts by their UTF-8 bytes, as Go's `<` on strings does.
 *
 * JavaScript's own `<` compares UTF-16 units: the same for all that Kubernetes lets into names.
 */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
