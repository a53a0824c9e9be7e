import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLaboratory } from "@kpng/laboratory/laboratory.ts";
import { network } from "@kpng/laboratory/one-node.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Command } from "commander";
import { families, writeManifests } from "../demo/manifests.ts";
import { kpngMain, print, runWalkthrough } from "../demo/walkthrough.ts";

const examples = `
Needs the commands ip, nft, nsenter and setpriv, and a kernel that permits network namespaces, to root or to every user.
This machine's network and rules are not touched. Without these, the demo explains what the node would do with a packet.

Exit code 1 if no packets could be sent, 130 after an interruption.
`;

/**
 * `kpng demo`: sends packets to a Service of made-up manifests, on a node of network namespaces, while they change.
 *
 * Where it cannot send packets, it explains what the node would do with one, and the exit code is 1. Errors: a step that
 * did not go as expected. Nothing is left behind.
 */
export function makeDemo(signal: AbortSignal): Command {
  return new Command("demo").addHelpText("after", examples).action(async () => {
    const startMs = performance.now();
    print("demo: manifests, a watcher, and a node whose rules kpng-nft makes; all in network namespaces");
    const opened = await openLaboratory("nft");
    if (opened.kind === "unavailable") {
      print(`Cannot send packets here: ${opened.reason}\nWhat the node would do with one:\n`);
      explainPacket();
      process.exitCode = 1;
      return;
    }
    const walkthrough = runWalkthrough(opened.laboratory);
    try {
      await Promise.race([walkthrough, aborted(signal)]);
      if (signal.aborted) {
        // The current step fails when the laboratory closes.
        walkthrough.catch(() => undefined);
        process.exitCode = 130;
      } else print(`\nDone in ${((performance.now() - startMs) / 1_000).toFixed(1)} s; everything is removed again.`);
    } finally {
      await opened.laboratory.close();
    }
  });
}

/** Prints what the demo's node would do with a packet, which needs no rights. */
function explainPacket(): void {
  const folder = mkdtempSync(join(tmpdir(), "kpng-demo-"));
  const manifests = join(folder, "manifests");
  writeManifests(manifests, network.pods);
  const packet = [`${families[0]?.external}:80`, "--from", "outside", "--node", network.node.name];
  const command = [kpngMain, "file", "-i", manifests, "explain", ...packet];
  spawnSync(process.execPath, command, { stdio: ["ignore", "inherit", "inherit"] });
  rmSync(folder, { recursive: true });
}
