import { connect, type Socket } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// The process starts on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 });

const { start } = usePrograms();
const sockets: Socket[] = [];

afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Starts a watcher that may have 160 open files. */
async function startWatcher(): Promise<{ apiPort: number; healthPort: number; said: () => string }> {
  const [apiPort = 0, healthPort = 0] = await freePorts(2);
  const listen = ["--listen", `127.0.0.1:${apiPort}`, "--healthz-bind-address", `127.0.0.1:${healthPort}`];
  const args = ["file", "-i", "test/fixtures/kpng/input.yaml", "to-api", ...listen];
  const watcher = start(kpngMain, args, {}, ["sh", "-c", 'ulimit -n 160; exec "$0" "$@"']);
  await watcher.said('"msg":"listening"');
  return { apiPort, healthPort, said: watcher.stderr };
}

/** Opens connections that send nothing. Refused ones end at once. */
function flood(port: number): void {
  for (let count = 0; count < 400; count += 1) sockets.push(connect(port, "127.0.0.1").on("error", () => undefined));
}

/** Returns the status of /livez; 0 for no answer. */
async function livez(port: number): Promise<number> {
  const response = fetch(`http://127.0.0.1:${port}/livez`, { signal: AbortSignal.timeout(5_000) });
  return response.then(
    ({ status }) => status,
    () => 0,
  );
}

test("health answers while clients have all the connections that they may have, and the log says so once", async () => {
  const { apiPort, healthPort, said } = await startWatcher();
  flood(apiPort);
  await expect.poll(said, { timeout: 30_000 }).toContain("connection refused");
  for (let count = 0; count < 3; count += 1) expect(await livez(healthPort)).toBe(200);
  expect(said().match(/connection refused/g)).toHaveLength(1);
});

test("a flood of the health port does not end the process, and health answers again while it lasts", async () => {
  const { apiPort, healthPort } = await startWatcher();
  flood(healthPort);
  flood(apiPort);
  await expect.poll(() => livez(healthPort), { timeout: 60_000 }).toBe(200);
});
