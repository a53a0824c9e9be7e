import { writeFileSync } from "node:fs";
import { node, service } from "@kpng/source/testing/build.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import { expect, test } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// A relay as a process, and its upstream watcher, which is stopped by a signal: its connections stay open, the kernel
// accepts further ones, and nothing answers.
const programs = usePrograms();

const patience = { timeout: 60_000 };

function writeState(path: string, name: string): void {
  const state = { services: [service({ name })], slices: [], nodes: [node("n1")] };
  writeFileSync(path, formatState(state));
}

test("a relay reports an upstream that is stopped, keeps serving, and goes on when the upstream does", {
  timeout: 240_000,
}, async () => {
  const [upstreamPort = 0, relayPort = 0, healthPort = 0] = await freePorts(3);
  const path = programs.at("state.yaml");
  writeState(path, "before");
  const listen = (port: number): readonly string[] => ["to-api", "--listen", `tcp://127.0.0.1:${port}`];
  const upstream = programs.start(kpngMain, ["file", "-i", path, ...listen(upstreamPort)]);
  await upstream.said('"msg":"listening"');
  const health = ["--healthz-bind-address", `127.0.0.1:${healthPort}`];
  const api = ["api", "--api", `127.0.0.1:${upstreamPort}`, "--stale-after", "3s"];
  const relay = programs.start(kpngMain, [...api, ...listen(relayPort), ...health]);
  const node1 = programs.start(kpngMain, [
    ...["local", "--api", `127.0.0.1:${relayPort}`, "to-json", "--node-name", "n1"],
  ]);
  const ask = async (at: string) => {
    const response = await fetch(`http://127.0.0.1:${healthPort}/${at}`).catch(() => undefined);
    return { status: response?.status, text: (await response?.text()) ?? "" };
  };
  const isCurrent = async (): Promise<boolean | undefined> => {
    const [, text] = /source\/current[^}]*"isHealthy":(true|false)/.exec((await ask("healthz")).text) ?? [];
    return text === undefined ? undefined : text === "true";
  };
  await expect.poll(() => node1.stdout(), patience).toContain("before");
  expect(await isCurrent()).not.toBe(false);

  upstream.signal("SIGSTOP");
  // After the longest silence, and a third of it until the next question.
  await expect.poll(isCurrent, patience).toBe(false);
  expect((await ask("healthz")).text).toContain("does not answer");
  expect((await ask("readyz")).status).toBe(200);
  // It gives the stream up, because its address may lead to another watcher by now.
  await expect.poll(() => relay.stderr(), patience).toMatch(/does not answer[^}]*"msg":"upstream watcher lost"/);
  const late = programs.start(kpngMain, [
    ...["local", "--api", `127.0.0.1:${relayPort}`, "to-json", "--node-name", "n2"],
  ]);
  await expect.poll(() => late.stdout(), patience).toContain("before");

  writeState(path, "after");
  upstream.signal("SIGCONT");
  await expect.poll(isCurrent, patience).toBe(true);
  await expect.poll(() => node1.stdout(), patience).toContain("after");
});
