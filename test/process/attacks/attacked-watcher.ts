import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import { afterAll, beforeAll, expect } from "vitest";
import { freePorts } from "../../cluster/ports.ts";
import { mebibytes, quantile, usageOf } from "../../scale/proc.ts";
import { makeCluster } from "../../scale/synthetic.ts";
import { imageVariables } from "../../scale/watcher-environment.ts";
import { kpngMain } from "../programs.ts";
import type { AttackName } from "./attacks.ts";

/**
 * A watcher with a memory limit of 512 MB, for all tests of a file: it must survive their attacks one after the other.
 */
export interface AttackedWatcher {
  readonly port: number;
  readonly program: Program;
  /** Returns the number of refusals of a limit. */
  refused(reason: string): Promise<number>;
  /**
   * Runs an attack of `attacks.ts` for some seconds, and probes the watcher meanwhile, and afterwards until it has
   * returned its memory. Fails if the watcher ends, takes more than its memory limit, or answers slowly.
   */
  survives(name: AttackName, seconds: number, leftoverBytes?: number): Promise<void>;
}

/** Memory limit of the watcher, in bytes. */
const limitBytes = 512 * 1024 * 1024;

/** Maximum growth of the RSS of the watcher 30 s after an attack, in bytes, unless a test says otherwise. */
const usualLeftoverBytes = 32 * 1024 * 1024;

const sampleMs = 500;

/** Registers hooks that start a watcher of 10 000 endpoints before the tests of a file, and kill it after them. */
export function useAttackedWatcher(args: readonly string[] = []): AttackedWatcher {
  let folder = "";
  let [port, healthPort] = [0, 0];
  let program: Program;
  let normalBytes = 0;
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "kpng-attacks-"));
    const path = join(folder, "state.yaml");
    const state = makeCluster({ services: 1_000, endpoints: 10, nodes: 1 });
    writeFileSync(path, formatState(state));
    [port = 0, healthPort = 0] = await freePorts(2);
    const options = ["--listen", `tcp://127.0.0.1:${port}`, "--healthz-bind-address", `127.0.0.1:${healthPort}`];
    const variables = imageVariables();
    program = startProgram(pathToFileURL(resolve(kpngMain)), ["file", "-i", path, "to-api", ...options, ...args], {
      ...variables,
      NODE_OPTIONS: `${variables.NODE_OPTIONS} --max-old-space-size=${limitBytes / 1024 / 1024}`,
    });
    await program.said('"msg":"listening"');
    while (!Number.isFinite(await healthMs("/readyz"))) await delay(sampleMs);
    normalBytes = await settledBytes(program.pid);
  }, 150_000);
  afterAll(async () => {
    program.kill();
    await program.ended;
    rmSync(folder, { recursive: true });
  });

  /**
   * Returns the time until a health probe is answered with status 200, in milliseconds; infinity for another answer.
   */
  async function healthMs(path = "/livez"): Promise<number> {
    const startMs = performance.now();
    try {
      const { status } = await fetch(`http://127.0.0.1:${healthPort}${path}`, { headers: { connection: "close" } });
      return status === 200 ? performance.now() - startMs : Number.POSITIVE_INFINITY;
    } catch {
      return Number.POSITIVE_INFINITY;
    }
  }

  async function survives(name: AttackName, seconds: number, leftoverBytes = usualLeftoverBytes): Promise<void> {
    const { pid } = program;
    const probes: number[] = [];
    let peakBytes = 0;
    let isOver = false;
    const before = usageOf(pid);
    const delaySince = [pid, process.pid].map(delayMeter);
    const startMs = performance.now();
    const probing = (async () => {
      while (!isOver) {
        probes.push(await healthMs());
        peakBytes = Math.max(peakBytes, usageOf(pid).rssBytes);
        await delay(20);
      }
    })();
    await runAttack(name, port, seconds);
    isOver = true;
    await probing;
    const busy = (usageOf(pid).cpuMs - before.cpuMs) / (performance.now() - startMs);
    // Other processes want the cores, too: on a machine of their own, neither the watcher nor this one would have waited.
    const delayed = delaySince.reduce((sum, delayOf) => sum + delayOf(), 1);
    const p99 = quantile(probes, 0.99);
    process.stdout.write(
      `${probes.length} probes, p99 ${p99.toFixed(0)} ms, waited ${delayed.toFixed(1)} times as long, CPU ${(100 * busy).toFixed(0)} %, ` +
        `RSS ${mebibytes(normalBytes)}, before ${mebibytes(before.rssBytes)}, peak ${mebibytes(peakBytes)}\n`,
    );
    const endedMs = performance.now();
    const timeout = 30_000 * slowness();
    const growth = () => usageOf(pid).rssBytes - normalBytes;
    await expect.poll(growth, { timeout, interval: sampleMs }).toBeLessThan(leftoverBytes);
    const tookMs = performance.now() - endedMs;
    process.stdout.write(`RSS afterwards ${mebibytes(usageOf(pid).rssBytes)}, after ${tookMs.toFixed(0)} ms\n`);
    expect(peakBytes).toBeLessThan(limitBytes);
    expect(p99).toBeLessThan(500 * delayed);
  }

  return {
    get port() {
      return port;
    },
    get program() {
      return program;
    },
    refused: async (reason) => {
      const text = await (await fetch(`http://127.0.0.1:${healthPort}/metrics`)).text();
      const line = text.split("\n").find((one) => one.startsWith(`kpng_refused_total{reason="${reason}"}`));
      return Number(line?.split(" ").at(-1));
    },
    survives,
  };
}

/** Returns the RSS of an idle watcher, in bytes, once it stays the same: it returns the memory of its start later. */
async function settledBytes(pid: number): Promise<number> {
  const recent: number[] = [];
  while (recent.length < 30 || Math.max(...recent) - Math.min(...recent) > 4 * 1024 * 1024) {
    await delay(sampleMs);
    recent.push(usageOf(pid).rssBytes);
    if (recent.length > 30) recent.shift();
  }
  return usageOf(pid).rssBytes;
}

/** Runs an attack in a process of its own, which ends by itself. */
export async function runAttack(name: AttackName, port: number, seconds: number): Promise<void> {
  const main = fileURLToPath(new URL("./attacker.ts", import.meta.url));
  const attacker = spawn(process.execPath, [main, name, String(port), String(seconds)], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  const exitCode = await new Promise((end) => attacker.once("close", end));
  expect(exitCode).toBe(0);
}

/**
 * Returns how long the main thread of a process has run, and waited for a core, in nanoseconds (/proc/PID/schedstat).
 */
function cpuTimes(pid: number): { readonly runNs: number; readonly waitNs: number } {
  const [runNs = 0, waitNs = 0] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ").map(Number);
  return { runNs, waitNs };
}

/** Returns a function that returns how long a process has waited for a core since now, as a multiple of its CPU time. */
function delayMeter(pid: number): () => number {
  const before = cpuTimes(pid);
  return () => {
    const after = cpuTimes(pid);
    return (after.waitNs - before.waitNs) / (after.runNs - before.runNs);
  };
}

/** How much longer everything takes because other processes want the cores, too: 1 on a quiet machine. */
function slowness(): number {
  return Math.max(1, (loadavg()[0] ?? 0) / availableParallelism());
}
