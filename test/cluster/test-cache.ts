import { homedir } from "node:os";
import { join } from "node:path";

/**
 * Returns a folder for files that tests keep between runs because making them takes minutes: programs in
 * `control-plane`, images and nodes in `e2e`, a kernel in `guest`. It may not exist yet. Separate from `go-build.ts`,
 * because test/e2e keeps more than programs.
 */
export function testCache(name: "control-plane" | "e2e" | "guest"): string {
  return join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "kpng", name);
}
