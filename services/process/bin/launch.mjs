import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

/**
 * Runs a TypeScript program of a clone with this Node.js, or with the Node.js 24 of node_modules if this one is older.
 *
 * This file is plain JavaScript, because `npm link` runs the commands with whichever Node.js the machine has.
 *
 * @param {URL} main
 */
export async function launch(main) {
  if (Number(process.versions.node.split(".")[0]) >= 24) {
    await import(main.href);
    return;
  }
  const node = fileURLToPath(new URL("../../../node_modules/.bin/node", import.meta.url));
  const child = spawn(node, [fileURLToPath(main), ...process.argv.slice(2)], { stdio: "inherit" });
  // A terminal sends SIGINT to both processes. If it were also passed on, the program would get a second SIGINT, which
  // ends kpng without cleaning up.
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
