import type { ChildProcess } from "node:child_process";
import { cp, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * A watcher or a backend of the demo; it runs until it is killed. The demo starts both as separate processes, as a user
 * would. This file is separate, because the walkthrough and the dry run start the same processes.
 */
export interface Running {
  readonly child: ChildProcess;
  /** The command as a person would type it. */
  readonly shown: string;
  /** Standard output and standard error so far. */
  readonly output: () => string;
}

const proxyName = "allip";

/** Starts a command, in a namespace or on this machine. */
type Start = (command: readonly string[]) => ChildProcess;

/** Starts the watcher on a folder of manifests. `runWalkthrough` and `renderRules` call it. */
export function startWatcher(start: Start, manifests: string, socket: string): Running {
  const to = ["to-api", "--listen", `unix://${socket}`, "--service-proxy-name", proxyName];
  return run(start, "kpng", new URL("../../services/cli/src/main.ts", import.meta.url), [
    "file",
    "-i",
    manifests,
    ...to,
  ]);
}

/** Starts the callout backend of a node; it runs the example's program with `options`. */
export function startCallout(start: Start, nodeName: string, socket: string, options: readonly string[] = []): Running {
  const from = ["--api", `unix://${socket}`, "--node-name", nodeName, "--service-proxy-name", proxyName];
  const to = ["--callout", join(exampleFolder, "all-ip.ts"), ...options.map((option) => `--callout-arg=${option}`)];
  return run(start, "kpng-callout", new URL("../../services/backend-callout/src/main.ts", import.meta.url), [
    ...from,
    ...to,
  ]);
}

/** Returns an error whose message continues with the commands and outputs of these processes. */
export function withOutput(cause: unknown, running: readonly Running[]): Error {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const outputs = running.map(({ shown, output }) => `${shown}\n${output()}`).join("\n");
  return new Error(`${reason}\n${outputs}`.trim(), { cause });
}

function run(start: Start, name: string, main: URL, options: readonly string[]): Running {
  const child = start([process.execPath, fileURLToPath(main), ...options]);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  return { child, shown: [name, ...options].join(" "), output: () => output };
}

/**
 * Folder of the all-IP example, which the demo shows: manifests, and a program for kpng-callout. The demo copies the
 * manifests, changes its copies, and thereby changes the cluster that its watcher reads.
 */
export const exampleFolder = fileURLToPath(new URL("../all-ip/", import.meta.url));

/** Copies the example's manifests into a folder whose files the demo changes. */
export async function copyManifests(folder: string): Promise<void> {
  await cp(join(exampleFolder, "manifests"), folder, { recursive: true });
}

/** Reads an unchanged manifest of the example. */
export async function readManifest(name: string): Promise<string> {
  return readFile(join(exampleFolder, "manifests", name), "utf8");
}

/**
 * Replaces a manifest atomically, with a rename, as editors and ConfigMap volumes do.
 *
 * Returns the time of the rename, by `performance.now()`.
 */
export async function replaceManifest(folder: string, name: string, text: string): Promise<number> {
  const next = `${folder}.${name}`;
  await writeFile(next, text);
  const changedAtMs = performance.now();
  await rename(next, join(folder, name));
  return changedAtMs;
}

/** Returns the text of an EndpointSlice without the endpoint that has this address. */
export function withoutEndpoint(slice: string, address: string): string {
  const lines = slice.split("\n");
  const start = lines.findIndex((line) => line.startsWith("  - addresses:") && line.includes(`"${address}"`));
  if (start < 0) return slice;
  const length = lines.slice(start + 1).findIndex((line) => !line.startsWith("    "));
  return lines.toSpliced(start, length + 1).join("\n");
}
