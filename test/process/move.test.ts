import { writeFileSync } from "node:fs";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import { dialHttp2, RawWatch } from "@kpng/watcher/testing/raw-watch.ts";
import { describe, expect, test } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// A watcher asks a node to reconnect elsewhere: no change is lost, and the backend is not called.
const { at, start } = usePrograms();

/** Time limit for the start of three processes on a busy machine. */
const patience = { timeout: 60_000 };

describe("a watcher that drains", { timeout: 180_000 }, () => {
  const state = formatState(makeCluster({ services: 2_000, endpoints: 1, nodes: 1 }));

  async function watcher(...args: string[]): Promise<{ readonly program: Program; readonly address: string }> {
    const file = at("state.yaml");
    writeFileSync(file, state);
    const program = start(kpngMain, ["file", "-i", file, "to-api", "--listen", "tcp://127.0.0.1:0", ...args]);
    await program.said('"msg":"listening"');
    return { program, address: /"addresses":\["([^"]+)"\]/.exec(program.stderr())?.[1] ?? "" };
  }

  test("sends its nodes to another watcher, which sends them only the difference", async () => {
    const [first, second] = await Promise.all([watcher(), watcher()]);
    const api = `${first.address},${second.address}`;
    const backend = start("services/backend-json/src/main.ts", ["--api", api, "--node-name", "n1"]);
    await backend.said("stream in sync");
    const asked = (): string | undefined =>
      [...backend.stderr().matchAll(/"address":"([^"]+)","msg":"connected to watcher"/g)].at(-1)?.[1];
    const [serving, other] = asked() === first.address ? [first, second] : [second, first];
    await expect.poll(() => backend.stdout().split("\n").length, patience).toBe(2_001);
    serving.program.stop();
    expect(await serving.program.ended).toBe(0);
    await backend.said("stream moved");
    await expect.poll(asked, patience).toBe(other.address);
    expect(backend.stderr()).not.toContain("stream lost");
    expect(backend.stdout().split("\n").length).toBe(2_001);
  });

  test("waits for a node that does not leave, but not after a second signal", async () => {
    const { program, address } = await watcher("--drain-time", "10m");
    const stalled = new RawWatch(dialHttp2(address));
    try {
      await stalled.received();
      stalled.stream.pause();
      program.stop();
      await new Promise((done) => stalled.session.once("goaway", done));
      expect(await program.endedAtOnce()).toBe(130);
    } finally {
      stalled.session.destroy();
    }
  });
});
