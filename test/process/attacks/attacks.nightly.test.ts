import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { freePorts } from "../../cluster/ports.ts";
import { mebibytes, usageOf } from "../../scale/proc.ts";
import { imageVariables } from "../../scale/watcher-environment.ts";
import { kpngMain } from "../programs.ts";
import type { AttackName } from "./attacks.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 150_000 });

/** Memory limit of the watcher, in bytes. */
const limitBytes = 512 * 1024 * 1024;

const attackSeconds = 5;

/** Longest answer of a health probe on a busy machine: three failures of a second each restart a pod. */
const probeMs = 3_000;

describe("a watcher of 10 000 endpoints with 512 MB", () => {
  const folder = temporaryFolder(afterAll);
  let program: Program;
  let [port, healthPort] = [0, 0];
  beforeAll(async () => {
    const path = join(folder, "state.yaml");
    const state = makeCluster({ services: 1_000, endpoints: 10, nodes: 1 });
    writeFileSync(path, formatState(state));
    [port = 0, healthPort = 0] = await freePorts(2);
    const options = ["--listen", `tcp://127.0.0.1:${port}`, "--healthz-bind-address", `127.0.0.1:${healthPort}`];
    const variables = imageVariables();
    program = startProgram(pathToFileURL(resolve(kpngMain)), ["file", "-i", path, "to-api", ...options], {
      ...variables,
      NODE_OPTIONS: `${variables.NODE_OPTIONS} --max-old-space-size=${limitBytes / 1024 / 1024}`,
    });
    await program.said('"msg":"listening"');
    await program.said('"msg":"input read"');
  });
  afterAll(async () => {
    program.kill();
    await program.ended;
  });

  /** Runs an attack of `attacks.ts`, in a process of its own, beside health probes that must be answered. */
  async function survive(name: AttackName): Promise<void> {
    const main = fileURLToPath(new URL("./attacker.ts", import.meta.url));
    const attacker = spawn(process.execPath, [main, name, String(port), String(attackSeconds)], { stdio: "inherit" });
    const closed = once(attacker, "close");
    while (attacker.exitCode === null) {
      const signal = AbortSignal.timeout(probeMs);
      const probe = fetch(`http://127.0.0.1:${healthPort}/livez`, { headers: { connection: "close" }, signal });
      expect((await probe).status).toBe(200);
      await delay(20);
    }
    expect(await closed).toEqual([0, null]);
    const { peakRssBytes } = usageOf(program.pid);
    process.stdout.write(`peak ${mebibytes(peakRssBytes)}\n`);
    expect(peakRssBytes).toBeLessThan(limitBytes);
  }

  /** Returns the number of refusals of a limit. */
  async function refused(reason: string): Promise<number> {
    const text = await (await fetch(`http://127.0.0.1:${healthPort}/metrics`)).text();
    return Number(new RegExp(`^kpng_refused_total\\{reason="${reason}"\\} (\\d+)`, "m").exec(text)?.[1]);
  }

  test("survives 1 000 WatchEndpoints on each of three connections that do not read", async () => {
    await survive("unread queries");
    // 100 calls of a connection get as far as the limit of queries, which is an eighth of the memory: 64 and some.
    expect(await refused("queries")).toBeGreaterThanOrEqual(3 * 100 - 70);
    expect(program.stderr()).toContain("query refused");
  });

  test("ends connections whose unfinished requests hold too much memory", async () => {
    await survive("unfinished requests");
    expect(await refused("requests")).toBeGreaterThan(0);
  });
});
