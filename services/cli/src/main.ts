#!/usr/bin/env node
import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

// The program `kpng`: this file only starts it, so tests can import the commands without running them.

// In a clone, Node.js keeps compiled sources in node_modules: without that, a command takes two seconds. Not in /tmp,
// where another user could put code that root then runs. A bundle compiles fast enough.
if (import.meta.url.endsWith("/services/cli/src/main.ts")) {
  enableCompileCache(fileURLToPath(new URL("../../../node_modules/.cache/kpng", import.meta.url)));
}

// Loaded on demand, after the cache is on.
const [{ runProcess }, { loadKpng, optionsLast }] = await Promise.all([
  import("@kpng/process/run/run-process.ts"),
  import("./kpng.ts"),
]);
const [node = "", main = "", ...rest] = process.argv;
const words = optionsLast(rest);
await runProcess(await loadKpng(words), [node, main, ...words]);
