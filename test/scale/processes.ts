import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { buildSync } from "esbuild";
import { bundleOptions } from "../../deploy/images/bundle.ts";
import { freePorts } from "../cluster/ports.ts";
import { Caller, type Handlers } from "./calls.ts";
import { type ProcessUsage, usageOf } from "./proc.ts";

/** Half of the cores that a process runs on, so that server and load do not share a core; or all cores, shared. */
type Place = "server" | "load" | "all";

/**
 * Entry files of what is measured. They are bundled as in the images; otherwise the TypeScript compiler dominates the
 * memory of a small server.
 */
const servers = {
  "fan-out-server": "test/scale/fan-out-server.ts",
  kpng: "services/cli/src/main.ts",
  "kpng-iptables": "services/backend-iptables/src/main.ts",
  "kpng-nft": "services/backend-nft/src/main.ts",
};

let bundledIn: string | undefined;

/** Returns the path of a bundled program. */
export function bundled(name: keyof typeof servers): string {
  if (bundledIn === undefined) {
    const folder = mkdtempSync(join(tmpdir(), "kpng-bench-"));
    process.once("exit", () => rmSync(folder, { recursive: true }));
    buildSync({ ...bundleOptions, entryPoints: servers, outdir: folder });
    // koffi is not bundled.
    symlinkSync(join(bundleOptions.absWorkingDir, "node_modules"), join(folder, "node_modules"));
    bundledIn = folder;
  }
  return join(bundledIn, `${name}.mjs`);
}

/** Starts a server, bundled and with the environment of the watcher's image; see {@link startCalled}. */
export function startServer<H extends Handlers>(name: keyof typeof servers, place: Place = "server"): Caller<H> {
  return startFile(bundled(name), place, watcherEnvironment());
}

/** Starts a TypeScript file of this folder; see {@link startFile}. */
export function startCalled<H extends Handlers>(file: string, place: Place): Caller<H> {
  return startFile(join(import.meta.dirname, file), place);
}

/** A relay between the server and some of the load. */
export interface Relay {
  readonly address: string;
  usage(): ProcessUsage;
  stop(): Promise<void>;
}

/** Starts `kpng api to-api`; resolves when it serves the state of the watcher at `upstream`. */
export async function startRelay(upstream: string): Promise<Relay> {
  const [port, statusPort] = await freePorts(2);
  const [address, status] = [`127.0.0.1:${port}`, `127.0.0.1:${statusPort}`];
  const [command = "", ...args] = [...pinTo("server"), process.execPath, bundled("kpng"), "api", "--api", upstream];
  const child = spawn(command, [...args, "to-api", "--listen", `tcp://${address}`, "--healthz-bind-address", status], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...watcherEnvironment(), KPNG_LOG_LEVEL: "error" },
  });
  const ended = once(child, "exit");
  for (;;) {
    const answer = await fetch(`http://${status}/readyz`).catch(() => undefined);
    if (answer?.ok) break;
    if (child.exitCode !== null) throw new Error(`the relay ended with exit code ${child.exitCode}`);
    await sleep(100);
  }
  return {
    address,
    usage: () => usageOf(child.pid ?? 0),
    stop: async () => {
      child.kill();
      await ended;
    },
  };
}

/** Starts a program that answers calls, at the given place. Its standard output is ours. */
function startFile<H extends Handlers>(file: string, place: Place, env?: NodeJS.ProcessEnv): Caller<H> {
  const [command = "", ...args] = [...pinTo(place), process.execPath, file];
  const child = spawn(command, args, { stdio: ["ignore", "inherit", "inherit", "ipc"], env });
  return new Caller<H>(child, basename(file));
}

/** Returns the prefix of a command that runs at the given place; empty with one core or without taskset. */
function pinTo(place: Place): readonly string[] {
  const cores = availableParallelism();
  if (place === "all" || cores < 2 || !hasTaskset()) return [];
  const half = Math.ceil(cores / 2);
  return ["taskset", "-c", place === "server" ? `0-${half - 1}` : `${half}-${cores - 1}`];
}

function hasTaskset(): boolean {
  try {
    execFileSync("taskset", ["-c", "0", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Returns the environment of this process, and the variables of the watcher's image that are not set in it. */
function watcherEnvironment(): NodeJS.ProcessEnv {
  const dockerfile = readFileSync(join(import.meta.dirname, "../../deploy/images/Dockerfile"), "utf8");
  const [, stage = ""] = /^FROM base AS watcher\n(.*?)^FROM/ms.exec(dockerfile) ?? [];
  const variables = stage.matchAll(/^ENV (\w+)=(?:"(.*)"|(.*))$/gm);
  const ofImage = Object.fromEntries([...variables].map(([, name, quoted, plain]) => [name, quoted ?? plain]));
  return { ...ofImage, ...process.env };
}
