#!/usr/bin/env node
// The command `kpng` of a clone. Plain JavaScript, because `npm link` runs it with any Node.js of the machine. The
// program itself is TypeScript, which needs the Node.js 24 of node_modules.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const main = new URL("../src/main.ts", import.meta.url);

if (Number(process.versions.node.split(".")[0]) >= 24) {
  await import(main.href);
} else {
  const node = fileURLToPath(new URL("../../../node_modules/.bin/node", import.meta.url));
  const child = spawn(node, [fileURLToPath(main), ...process.argv.slice(2)], { stdio: "inherit" });
  // A terminal sends SIGINT to both. Passed on, it would be the second one, which ends kpng without cleaning up.
  const hasTerminal = [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY);
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(name, () => (name === "SIGINT" && hasTerminal ? undefined : child.kill(name)));
  }
  child.on("error", () => {
    process.stderr.write(`kpng needs Node.js 24, and ${node} is missing: run "npm ci" in the clone\n`);
    process.exitCode = 1;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = code ?? (signal === null ? 1 : 130);
  });
}
