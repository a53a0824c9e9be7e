/**
 * Compares two texts by their UTF-8 bytes, as Go's `<` on strings does. Nearly all packages share it, and sort with it
 * where the order of output must be the same as KPNG's or on all machines.
 *
 * It uses JavaScript's `<`, which compares UTF-16 code units: the same order for all characters that Kubernetes allows
 * in names.
 */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
