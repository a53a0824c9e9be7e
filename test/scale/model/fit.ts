/** A cost as a sum of terms: each coefficient times what it is counted by. */
export interface Fit {
  readonly coefficients: readonly number[];
  /** For each measured value, the fit's value divided by it, minus 1. */
  readonly residuals: readonly number[];
}

/** A measured value, and for each coefficient how often it is counted. */
export type Measured = readonly [value: number, ...counts: readonly number[]];

/**
 * Returns the coefficients with the smallest sum of squared relative residuals, so that small rows count as much as
 * large ones. There must be at least as many different rows as coefficients. Pure.
 */
export function fitTo(rows: readonly Measured[]): Fit {
  const relative = rows.map(([value, ...counts]) => counts.map((count) => count / value));
  const [first = []] = relative;
  const sumOver = (of: (row: readonly number[]) => number): number => relative.reduce((sum, row) => sum + of(row), 0);
  // The normal equations, each row followed by its right side.
  const equations = first.map((_, i) => [
    ...first.map((_, j) => sumOver((row) => (row[i] ?? 0) * (row[j] ?? 0))),
    sumOver((row) => row[i] ?? 0),
  ]);
  const coefficients = solve(equations);
  const residuals = relative.map((row) => row.reduce((sum, x, i) => sum + x * (coefficients[i] ?? 0), -1));
  return { coefficients, residuals };
}

/** Solves linear equations by Gauss-Jordan elimination. Each row ends with its right side. */
function solve(equations: readonly (readonly number[])[]): readonly number[] {
  let rows = equations;
  for (let at = 0; at < equations.length; at += 1) {
    const pivot = rows[at] ?? [];
    const unit = pivot.map((value) => value / (pivot[at] ?? 1));
    rows = rows.map((row, index) =>
      index === at ? unit : row.map((value, j) => value - (row[at] ?? 0) * (unit[j] ?? 0)),
    );
  }
  return rows.map((row) => row.at(-1) ?? 0);
}
