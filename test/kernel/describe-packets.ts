import { openLaboratory } from "@kpng/laboratory/open-laboratory.ts";
import { describe, test } from "vitest";

/** Reason why no packets can be sent here; undefined if they can. */
const reason = await findReason();

async function findReason(): Promise<string | undefined> {
  const opened = await openLaboratory(() => undefined);
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
