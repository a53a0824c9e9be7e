import { openLaboratory } from "@kpng/laboratory/laboratory.ts";
import { describe, expect, test } from "vitest";
import { type IptablesVariant, whyNoLegacy } from "./laboratory/legacy-tools.ts";

/** Reason why no packets can be sent here; undefined if they can. */
const reason = await findReason();

async function findReason(): Promise<string | undefined> {
  const opened = await openLaboratory();
  if (opened.kind === "unavailable") return opened.reason;
  await opened.laboratory.close();
  return undefined;
}

/**
 * Describes tests that send packets in network namespaces.
 *
 * If that is not possible, they are skipped with the reason in their name; under CI=true they fail.
 */
export function describePackets(name: string, body: () => void): void {
  if (reason === undefined) describe(name, body);
  else if (process.env.CI === "true") {
    test(name, () => {
      throw new Error(`CI must be able to send packets in namespaces: ${reason}`);
    });
  } else describe.skip(`${name} (skipped: ${reason})`, body);
}

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
