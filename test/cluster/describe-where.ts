import { describe, expect, test } from "vitest";

/**
 * Describes tests that not every machine can run. Where one cannot, a test that is skipped with the reason in its name
 * replaces them; under CI=true it fails.
 */
export function describeWhere(name: string, whyNot: string | undefined, body: () => void): void {
  if (whyNot === undefined) describe(name, body);
  else if (process.env.CI === "true") test(name, () => expect.fail(whyNot));
  else test.skip(`${name} (skipped: ${whyNot})`, () => undefined);
}
