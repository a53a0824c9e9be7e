import { addOptions } from "@kpng/process/options.ts";
import { formatVersion } from "@kpng/process/run/run-process.ts";
import { Command } from "commander";
import packageJson from "../../package.json" with { type: "json" };
import type { Options } from "../context/command-context.ts";
import { plainReason } from "../inspect/client.ts";
import { textOrJsonOption } from "../inspect/print/output.ts";
import { oneLine } from "../inspect/print/text.ts";
import { joinReplicas } from "../inspect/replicas.ts";
import { remoteOptions, withReplicas } from "./inspect.ts";

/** Timeout for the request to the watcher, in milliseconds. */
const timeoutMs = 3_000;

/** `kpng version`. If no watcher answers, it prints its own version and the reason. */
export function makeVersion(signal: AbortSignal): Command {
  const specs = [textOrJsonOption("KPNG_VERSION_OUTPUT"), ...remoteOptions];
  return addOptions(new Command("version"), specs).action(async (options: Options) => {
    const { version } = packageJson;
    let watcherVersion: string | undefined;
    let warning: string | undefined;
    try {
      await withReplicas(options, signal, async (replicas) => {
        const status = await joinReplicas(replicas).client.getStatus({}, { timeoutMs });
        watcherVersion = oneLine(status.version);
      });
      warning = skewOf(version, watcherVersion);
    } catch (error) {
      warning = `no version of a watcher: ${plainReason(error)}`;
    }
    if (options.output === "json") {
      const program = { version, nodejs: process.version, platform: `${process.platform}/${process.arch}` };
      process.stdout.write(`${JSON.stringify({ ...program, watcherVersion })}\n`);
    } else {
      process.stdout.write(`${formatVersion("kpng", version)}\n`);
      if (watcherVersion !== undefined) process.stdout.write(`watcher ${watcherVersion || "unknown"}\n`);
    }
    if (warning !== undefined) process.stderr.write(`warning: ${oneLine(warning)}\n`);
  });
}

/** Returns a warning if the two versions are not supported together; undefined if they are, or if one is unknown. */
function skewOf(version: string, watcher: string | undefined): string | undefined {
  const minor = (text: string): string => /^\d+\.\d+/.exec(text)?.[0] ?? "";
  if (watcher === undefined || watcher === "" || minor(version) === minor(watcher)) return undefined;
  return `kpng ${version} and a watcher of version ${watcher} are not supported together: use kpng ${minor(watcher)} (docs/version-skew.md)`;
}
