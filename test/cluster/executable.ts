import { accessSync, constants } from "node:fs";

/** Returns whether the file exists and is executable. */
export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
