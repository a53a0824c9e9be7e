import { resolve } from "node:path";
import { type ApiCall, ApiServerStates } from "@kpng/laboratory/check/api-server-states.ts";
import { CommandProxy, type ProxyCommand } from "@kpng/laboratory/check/command-proxy.ts";
import { Excepted, NotRunnable, type PacketCase, PacketRun } from "@kpng/laboratory/check/packet-cases.ts";
import { serveSctp, whyNoSctp } from "@kpng/laboratory/check/sctp.ts";
import { type StateSource, WatcherStates } from "@kpng/laboratory/check/states.ts";
import { buildTwoNodes, targetPorts } from "@kpng/laboratory/check/two-nodes.ts";
import { type Laboratory, openLaboratory } from "@kpng/laboratory/laboratory.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { aborted } from "@kpng/process/wait.ts";
import { connectKube, loadConfig } from "@kpng/source/kube/connect.ts";
import { parseJson, readText } from "@kpng/source/kube/connection.ts";
import type { CaseResult } from "./results.ts";

/** What is judged, and by which states. */
interface PacketSettings extends ProxyCommand {
  /** Kubeconfig of the API server that serves the states. Default: kpng's watcher serves them. */
  readonly kubeconfig?: string | undefined;
}

/** Time limit of a request to an API server, in milliseconds. */
const apiLimitMs = 30_000;

/**
 * Runs cases by real packets, one after the other, and reports each result. Ends early after an abort, and after three
 * cases in a row that ended with an error, such as a state that was not applied in time.
 *
 * Errors: BAD_OPTION if this machine permits no network namespaces, for the command, or for the kubeconfig.
 */
export async function runPackets(
  cases: readonly PacketCase[],
  settings: PacketSettings,
  report: (result: CaseResult) => void,
  signal: AbortSignal,
): Promise<void> {
  checkPlaceholders(settings);
  const startStates = settings.kubeconfig === undefined ? startWatcher : prepareApiServer(settings.kubeconfig);
  const opened = await openLaboratory();
  if (opened.kind === "unavailable") throw new ProcessError("BAD_OPTION", `no network namespaces: ${opened.reason}`);
  const world = await buildTwoNodes({ laboratory: opened.laboratory, families: settings.profile.families });
  await using _ = { [Symbol.asyncDispose]: () => world.close() };
  if (whyNoSctp() === undefined) await serveSctp(world.laboratory, targetPorts);
  const states = await startStates(world.laboratory);
  const proxy = await CommandProxy.open(world, states, settings).catch(asBadOption("the command"));
  try {
    const run = await PacketRun.begin(world, proxy);
    const interrupted = aborted(signal);
    let errors = 0;
    for (const one of cases) {
      const result = await runCase(one, run, interrupted);
      if (signal.aborted) return;
      report(result.result);
      errors = result.isError ? errors + 1 : 0;
      if (errors < 3) continue;
      process.stderr.write("three cases in a row ended with an error, so the others are not tried\n");
      return;
    }
  } finally {
    await proxy.close().catch((error: unknown) => {
      process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = 1;
    });
  }
}

function asBadOption(what: string): (error: unknown) => never {
  return (error) => {
    if (error instanceof ProcessError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new ProcessError("BAD_OPTION", `${what}: ${reason}`, { cause: error });
  };
}

/** Errors: BAD_OPTION for a placeholder that does not exist, or that has no value in this run. */
function checkPlaceholders({ command, kubeconfig }: PacketSettings): void {
  const known = ["node", "cgroup", "bpf", kubeconfig === undefined ? "api" : "kubeconfig"];
  for (const word of command) {
    if (word === "{options}") continue;
    const unknown = [...word.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name).find((name) => !known.includes(name));
    if (unknown === undefined) continue;
    const isPart = unknown === "options" ? ": {options} must be a word of its own" : "";
    const all = [...known, "options"].map((name) => `{${name}}`).join(", ");
    throw new ProcessError("BAD_OPTION", `"${word}" has the placeholder {${unknown}}${isPart || `; there are ${all}`}`);
  }
}

/** Returns the port of the API server. Errors: BAD_OPTION if it is not on this machine. */
function portOf(kubeconfig: string): number {
  const cluster = loadConfig({ kubeconfig }).getCurrentCluster();
  const server = new URL(cluster?.server ?? "");
  if (/^(?:127\.0\.0\.1|localhost)$/.test(server.hostname) && cluster?.proxyUrl === undefined) {
    return Number(server.port || 443);
  }
  const text = `--kubeconfig ${kubeconfig}: ${server.href} is not on 127.0.0.1; run an API server for the test`;
  throw new ProcessError("BAD_OPTION", text);
}

/** Starts this program as a watcher. */
function startWatcher(laboratory: Laboratory): Promise<StateSource> {
  const main = process.argv[1] ?? "";
  return WatcherStates.start(laboratory, { kpng: [process.execPath, ...process.execArgv, resolve(main)] });
}

/** Returns a function that lets the API server of a kubeconfig serve the states. Errors, of both: BAD_OPTION. */
function prepareApiServer(kubeconfig: string): (laboratory: Laboratory) => Promise<StateSource> {
  const port = portOf(kubeconfig);
  const client = connectKube({ kubeconfig });
  const call: ApiCall = async (method, path, body) => {
    const response = await client.send(method, path, body as object | undefined, AbortSignal.timeout(apiLimitMs));
    const text = await readText(response.body);
    if (response.status >= 300) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 500)}`);
    return parseJson(text);
  };
  return (laboratory) =>
    ApiServerStates.start(laboratory, { call, kubeconfig: resolve(kubeconfig), port }).catch(
      asBadOption("--kubeconfig"),
    );
}

async function runCase(
  one: PacketCase,
  run: PacketRun,
  interrupted: Promise<void>,
): Promise<{ readonly result: CaseResult; readonly isError: boolean }> {
  const startMs = performance.now();
  const end = (kind: CaseResult["kind"], reason = "", isError = false) => {
    const result = { id: one.id, rule: one.name, kind, reason, elapsedMs: performance.now() - startMs };
    return { result, isError };
  };
  try {
    const wrong = await Promise.race([one.run(run), interrupted.then(() => ["interrupted"])]);
    return wrong.length === 0 ? end("passed") : end("failed", wrong.join("\n"));
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (error instanceof NotRunnable) return end(error instanceof Excepted ? "excepted" : "not-applicable", text);
    return end("failed", text, true);
  }
}
