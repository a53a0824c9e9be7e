#!/usr/bin/env node
import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

// Starts the program `kpng`. This file does nothing else, so that tests can import the commands without running them.

// In a clone, make Node.js cache compiled sources in node_modules; without the cache, a command takes two seconds. The
// cache must not be in /tmp, where another user could put code that root then runs. A bundle compiles fast enough.
if (import.meta.url.endsWith("/services/cli/src/main.ts")) {
  enableCompileCache(fileURLToPath(new URL("../../../node_modules/.cache/kpng", import.meta.url)));
}

// Import these modules only after the cache is enabled.
const [{ runProcess }, { loadKpng, optionsLast }] = await Promise.all([
  import("@kpng/process/run/run-process.ts"),
  import("./kpng.ts"),
]);
const [node = "", main = "", ...rest] = process.argv;
const words = optionsLast(rest);
await runProcess(await loadKpng(words), [node, main, ...words]);
