import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** Makes an empty folder, which is deleted after the test; after all tests of the file if `finished` is `afterAll`. */
export function temporaryFolder(finished: (remove: () => void) => void = onTestFinished): string {
  const folder = mkdtempSync(join(tmpdir(), "kpng-test-"));
  finished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
