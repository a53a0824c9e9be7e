import { renameSync, writeFileSync } from "node:fs";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect } from "vitest";
import { freePort } from "../cluster/ports.ts";
import { runKpng } from "../docs/run-kpng.ts";
import { kpngMain, type Programs } from "./programs.ts";

/** Where a watcher shows its findings: its API, for `kpng`, and its port for the page, metrics and health. */
export interface Watched {
  readonly api: string;
  /** *Shape:* `http://127.0.0.1:12091`. */
  readonly http: string;
}

/** Starts a watcher with the arguments of its source, and waits until its port answers. */
export async function startWatcher(
  { at, start }: Pick<Programs, "at" | "start">,
  source: readonly string[],
  listen: readonly string[] = [],
): Promise<Watched> {
  const [api, port] = [`unix://${at("api.sock")}`, await freePort()];
  const bind = ["--healthz-bind-address", `127.0.0.1:${port}`, "--metrics-bind-address", `127.0.0.1:${port}`];
  const program = start(kpngMain, [...source, "to-api", "--listen", api, ...listen, ...bind]);
  await program.said('"msg":"listening"');
  const http = `http://127.0.0.1:${port}`;
  await expect.poll(async () => (await fetch(`${http}/livez`).catch(() => undefined))?.ok).toBe(true);
  return { api, http };
}

/** Starts a backend that follows a node without touching anything. */
export function startJson({ start }: Pick<Programs, "start">, api: string, name: string): Program {
  const node = ["--api", api, "--node-name", name, "--log-level", "off"];
  return start("services/backend-json/src/main.ts", node);
}

/** Replaces a file in one step. */
export function replaceFile(path: string, text: string): void {
  writeFileSync(`${path}.next`, text);
  renameSync(`${path}.next`, path);
}

/** Returns what each place that reports problems says at the moment. */
export async function surfaces({ api, http }: Watched) {
  const get = async (path: string) => await fetch(`${http}${path}`);
  const findings = await fetch(`${http}/kpng.inspect.v1.InspectService/ListFindings`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  const { findings: list = [] } = (await findings.json()) as { readonly findings?: readonly Record<string, string>[] };
  const metrics = await (await get("/metrics")).text();
  const count = (severity: string): number =>
    Number(new RegExp(`^kpng_watcher_findings\\{severity="${severity}"\\} (\\d+)$`, "m").exec(metrics)?.[1]);
  const analyze = await runKpng(["analyze", "--api", api]);
  const health = await get("/healthz");
  const { parts } = (await health.json()) as { readonly parts: Record<string, { readonly reason: string }> };
  return {
    status: (await runKpng(["status", "--api", api])).out,
    top: (await runKpng(["top", "--api", api])).out,
    analyze: analyze.out,
    exitCode: analyze.code,
    // *Shape:* one line `error none-ready service/default/web: none of its…` for each finding.
    page: list
      .map(({ severity = "", code, subject, text }) => `${wordOf(severity)} ${code} ${subject}: ${text}\n`)
      .join(""),
    errors: count("error"),
    warnings: count("warning"),
    // *Shape:* one line `part: reason` for each part, as in findings.
    health: Object.entries(parts)
      .map(([part, { reason }]) => `${part}: ${reason}\n`)
      .join(""),
    healthStatus: health.status,
    readyStatus: (await get("/readyz")).status,
  };
}

function wordOf(severity: string): string {
  return severity.replace("FINDING_SEVERITY_", "").toLowerCase();
}

/** Surfaces of a watcher that knows of no problem. */
const green = {
  status: expect.stringMatching(/^findings +none$/m),
  analyze: "No findings.\n",
  exitCode: 0,
  page: "",
  errors: 0,
  warnings: 0,
  healthStatus: 200,
  readyStatus: 200,
};

/** A problem, and what it does to the watcher's own health. */
export interface Problem {
  readonly code: string;
  readonly severity: "error" | "warning";
  /** What all surfaces say. */
  readonly says: string;
  /** Status of `/healthz`. Default 200: nothing is wrong with the watcher itself. */
  readonly healthStatus?: number;
  /** Default 200. */
  readonly readyStatus?: number;
  /** True if health also names it, although the status may be 200. Default: if one of both statuses is 503. */
  readonly isInHealth?: boolean;
}

/** Waits until no surface reports a problem. */
export function expectGreen(watched: Watched, message = "everything is in order"): Promise<void> {
  return expect.poll(() => surfaces(watched), { message }).toMatchObject(green);
}

/** Matches the line of a problem in `page`. */
export function lineOf({ severity, code, says }: Problem): RegExp {
  return new RegExp(`^${severity} ${code} .*${RegExp.escape(says)}`, "m");
}

/** Waits until all surfaces name a problem, with its severity. */
export function expectNamed(watched: Watched, problem: Problem): Promise<void> {
  const { code, severity, says, healthStatus = 200, readyStatus = 200 } = problem;
  const { isInHealth = healthStatus !== 200 || readyStatus !== 200 } = problem;
  const named = expect.stringContaining(says);
  return expect
    .poll(() => surfaces(watched), { message: `${code}: ${says}` })
    .toMatchObject({
      status: named,
      top: named,
      analyze: named,
      exitCode: severity === "error" ? 1 : 0,
      page: expect.stringMatching(lineOf(problem)),
      [`${severity}s`]: expect.toSatisfy((count: number) => count > 0, "at least 1"),
      health: isInHealth ? named : expect.not.stringContaining(says),
      healthStatus,
      readyStatus,
    });
}
