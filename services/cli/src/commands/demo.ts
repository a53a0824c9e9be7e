import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLaboratory } from "@kpng/laboratory/laboratory.ts";
import { network } from "@kpng/laboratory/one-node.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Command } from "commander";
import { writeManifests } from "../demo/manifests.ts";
import { Print } from "../demo/print.ts";
import { runWalkthrough } from "../demo/walkthrough.ts";

const examples = `
Needs the commands ip, nsenter and setpriv, and a kernel that permits network namespaces, to root or to every user. This
machine's network and rules are not touched. Without namespaces, the demo prints the rules that it would make.

Exit code 1 if no packets could be sent, 130 after an interruption.
`;

/**
 * `kpng demo`: sends packets to a Service of made-up manifests, on a node of network namespaces, while they change.
 *
 * On a machine that permits no namespaces it prints the rules instead, and the exit code is 1. Errors: a step that did
 * not go as expected. Nothing is left behind.
 */
export function makeDemo(signal: AbortSignal): Command {
  return new Command("demo").addHelpText("after", examples).action(async () => {
    const startMs = performance.now();
    const print = new Print();
    print.line("demo: manifests, a watcher, and a node whose rules kpng-nft makes; all in network namespaces");
    const opened = await openLaboratory();
    if (opened.kind === "unavailable") {
      print.line(`Cannot send packets here: ${opened.reason}`);
      print.line("The rules that the node would get:\n");
      await printRules(signal);
      process.exitCode = 1;
      return;
    }
    const { laboratory } = opened;
    try {
      const walkthrough = runWalkthrough(laboratory, print);
      await Promise.race([walkthrough, aborted(signal)]);
      if (signal.aborted) {
        // The current step fails when the laboratory closes.
        walkthrough.catch(() => undefined);
        process.exitCode = 130;
      } else {
        const seconds = ((performance.now() - startMs) / 1_000).toFixed(1);
        print.line(`\nDone in ${seconds} s; everything is removed again.`);
      }
    } finally {
      await laboratory.close();
    }
  });
}

/** Prints the rules of the demo's node, as `kpng file … to-local to-nft --dry-run` does. */
async function printRules(signal: AbortSignal): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "kpng-demo-"));
  try {
    const manifests = join(folder, "manifests");
    await writeManifests(manifests, network.pods);
    const backend = ["to-local", "to-nft", "--dry-run", "--once", "--node-name", network.node.name];
    const command = [process.argv[1] ?? "", "file", "-i", manifests, ...backend, "--log-level", "error"];
    const child = spawn(process.execPath, command, { stdio: ["ignore", "inherit", "inherit"], signal });
    await once(child, "exit");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
