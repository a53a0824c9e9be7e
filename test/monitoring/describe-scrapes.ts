import { Laboratory, LaboratoryUnavailable } from "@kpng/laboratory/laboratory.ts";
import { beforeAll, describe, expect, test } from "vitest";
import { type Scrapes, scrapePrograms } from "./scrape-programs.ts";

/** Runs tests on the metrics of all programs; skips them with the reason if network namespaces are not available. */
export async function describeScrapes(name: string, tests: (scrapes: () => Scrapes) => void): Promise<void> {
  const whyNot = await whyNoLaboratory();
  describe(name, () => {
    if (whyNot !== undefined) {
      test.skipIf(process.env.CI !== "true")(`can run (skipped: ${whyNot})`, () => expect.fail(whyNot));
      return;
    }
    let scrapes: Scrapes = new Map();
    beforeAll(async () => {
      scrapes = await scrapePrograms();
    }, 180_000);
    tests(() => scrapes);
  });
}

async function whyNoLaboratory(): Promise<string | undefined> {
  try {
    await (await Laboratory.open()).close();
    return undefined;
  } catch (error) {
    if (error instanceof LaboratoryUnavailable) return error.message;
    throw error;
  }
}
