import { openLaboratory } from "@kpng/laboratory/open-laboratory.ts";
import { describe, test } from "vitest";

/** Why no packet can be sent here; undefined if it can. */
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
 * Where that is not possible they are skipped and the reason stands in their name; under CI=true that is a failure.
 */
export function describePackets(name: string, body: () => void): void {
  if (reason === undefined) describe(name, body);
  else if (process.env.CI === "true") {
    test(name, () => {
      throw new Error(`CI must be able to send packets in namespaces: ${reason}`);
    });
  } else describe.skip(`${name} (skipped: ${reason})`, body);
}
