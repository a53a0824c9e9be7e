/** Quantiles 0.975 of Student's t distribution for 1, 2, … degrees of freedom; the last one is near the normal's. */
const studentT = [
  12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.2, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.1, 2.09, 2.09,
];

/**
 * Describes the mean of samples and its 95 % confidence interval, if the samples are independent. *Shape:* `24.1 ±
 * 0.3`; without an interval for a single sample.
 */
export function describeInterval(samples: readonly number[], digits: number): string {
  const count = samples.length;
  const mean = samples.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return mean.toFixed(digits);
  const variance = samples.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (count - 1);
  const half = (studentT[Math.min(count - 1, studentT.length) - 1] ?? 2) * Math.sqrt(variance / count);
  return `${mean.toFixed(digits)} ± ${half.toFixed(digits)}`;
}
