import { expect, test } from "vitest";
import { describePackets } from "./describe-packets.ts";
import { type IptablesVariant, whyNoLegacy } from "./laboratory/legacy-tools.ts";

/**
 * Describes tests once with iptables-nft and once with iptables-legacy.
 *
 * Tests that cannot run here, also because of `whyNot`, are skipped with the reason in their name; under CI=true they
 * fail.
 */
export function describeVariants(
  name: string,
  whyNot: string | undefined,
  body: (variant: IptablesVariant) => void,
): void {
  for (const variant of ["nft", "legacy"] as const) {
    describePackets(`${name}, iptables-${variant}`, () => {
      const reason = whyNot ?? (variant === "legacy" ? whyNoLegacy() : undefined);
      if (reason === undefined) body(variant);
      else if (process.env.CI === "true") test("can run", () => expect.fail(reason));
      else test.skip(`can run (skipped: ${reason})`, () => undefined);
    });
  }
}
