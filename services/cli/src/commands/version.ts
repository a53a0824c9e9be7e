import { addOptions } from "@kpng/process/options.ts";
import { formatVersion } from "@kpng/process/run/run-process.ts";
import { Command } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import type { Options } from "../context/command-context.ts";
import type { Replica } from "../inspect/client.ts";
import { textOrJsonOption } from "../inspect/print/output.ts";
import { oneLine } from "../inspect/print/text.ts";
import { joinReplicas } from "../inspect/replicas.ts";
import { closeAll, connectReplicas, remoteOptions } from "./inspect.ts";

const versionText = formatVersion("kpng", packageJson.version);

/** Timeout for the request to the watcher, in milliseconds. */
const limitMs = 3_000;

/** `kpng version`. If no watcher answers, it prints its own version and the reason. */
export function makeVersion(signal: AbortSignal): Command {
  const specs = [textOrJsonOption("KPNG_VERSION_OUTPUT"), ...remoteOptions];
  return addOptions(new Command("version"), specs).action(async (options: Options) => {
    const version = packageJson.version;
    const watcher = await askVersion(options, signal);
    const program = { version, nodejs: process.version, platform: `${process.platform}/${process.arch}` };
    if (options.output === "json") {
      const more = watcher?.version === undefined ? {} : { watcherVersion: watcher.version };
      process.stdout.write(`${JSON.stringify({ ...program, ...more })}\n`);
    } else {
      process.stdout.write(`${versionText}\n`);
      if (watcher?.version !== undefined) process.stdout.write(`watcher ${oneLine(watcher.version) || "unknown"}\n`);
    }
    const note = watcher?.reason ?? skewOf(version, watcher?.version);
    if (note !== undefined) process.stderr.write(`warning: ${oneLine(note)}\n`);
  });
}

async function askVersion(
  options: Options,
  signal: AbortSignal,
): Promise<{ readonly version?: string; readonly reason?: string }> {
  let replicas: readonly Replica[] = [];
  try {
    replicas = await connectReplicas(options, signal);
    const limit = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
    return { version: (await joinReplicas(replicas).client.getStatus({}, { signal: limit })).version };
  } catch (error) {
    const names = replicas.map(({ api }) => api).join(", ");
    return { reason: `no version of a watcher: ${names}${names === "" ? "" : ": "}${(error as Error).message}` };
  } finally {
    closeAll(replicas);
  }
}

/** Returns a warning if the two versions are not supported together; undefined if they are, or if one is unknown. */
function skewOf(version: string, watcher: string | undefined): string | undefined {
  const minor = (text: string): string => /^\d+\.\d+/.exec(text)?.[0] ?? "";
  if (watcher === undefined || watcher === "" || minor(version) === minor(watcher)) return undefined;
  return `kpng ${version} and a watcher of version ${watcher} are not supported together: use kpng ${minor(watcher)} (docs/version-skew.md)`;
}
