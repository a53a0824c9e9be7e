import { readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { aborted } from "@kpng/process/wait.ts";
import { beforeEach, expect, test } from "vitest";
import { freePort, listen } from "../../../../test/cluster/ports.ts";
import { inTurn, startFakeWatcher } from "../testing/fake-watcher.ts";
import { putService, reset, sync } from "../testing/ops.ts";
import { type Program, startProgram } from "../testing/program.ts";
import type { BackendCommand, BackendContext } from "./backend-command.ts";
import { serveBackend } from "./run-backend.ts";

let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

const main = new URL("../testing/proxy-main.ts", import.meta.url);

const unusedAddress = async (): Promise<string> => `127.0.0.1:${await freePort()}`;

const play = () => startFakeWatcher(inTurn([reset, putService("a/web"), sync(1n, "run")]));

async function end(program: Program): Promise<void> {
  program.stop();
  expect(await program.ended, program.stderr()).toBe(0);
}

test("a proxy uses the watcher that works, its configuration and its saved view, and answers health as kube-proxy does", async () => {
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\niptables: {masqueradeAll: true}\nportRange: 1-2\n",
  );
  const observed = await unusedAddress();
  const state = join(folder, "state");
  const gone = await unusedAddress();
  const start = (...api: readonly string[]): Program => {
    const apis = api.flatMap((address) => ["--api", address]);
    const serve = ["--metrics-bind-address", observed, "--healthz-bind-address", observed];
    const args = ["--node-name", "n1", "--config", config, "--state-dir", state, "--error-delay", "50ms"];
    return startProgram(main, [...apis, ...serve, ...args]);
  };
  const ask = async (path: string) => {
    const response = await fetch(`http://${observed}${path}`);
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  {
    await using watcher = await play();
    const program = start(gone, watcher.address);
    await program.printed("full watcher all: a/web\n");
    expect(program.stderr()).toContain('"field":"portRange","reason":"kpng has no such option"');
    const healthz = await ask("/healthz");
    // The view of this watcher has no Node, so the cluster does not know the node.
    expect([healthz.status, healthz.headers.get("x-content-type-options")]).toEqual([503, "nosniff"]);
    expect(JSON.parse(healthz.text)).toMatchObject({ healthy: true, nodeEligible: false, reason: expect.any(String) });
    expect((await ask("/livez")).status).toBe(200);
    expect((await ask("/readyz")).status).toBe(200);
    expect((await ask("/proxyMode")).text).toBe("iptables");
    const metrics = (await ask("/metrics")).text;
    expect(metrics).toContain('kubeproxy_proxy_healthz_total{code="503"} 1\n');
    expect(metrics).toContain('kubeproxy_proxy_livez_total{code="200"} 1\n');
    expect(metrics).toContain('kpng_part_ready{part="test"} 1\n');
    expect(metrics).toMatch(/^kpng_build_info\{version="\d+\.\d+\.\d+[^"]*",nodejs="v\d+[^"]*"\} 1$/m);
    await end(program);
  }
  expect(readdirSync(state)).toEqual(["view"]);
  const program = start(gone);
  await program.printed("full disk all: a/web\n");
  expect((await ask("/healthz")).status).toBe(200);
  expect((await ask("/readyz")).status).toBe(503);
  expect((await ask("/metrics")).text).toContain("kpng_backend_view_from_disk 1\n");
  await end(program);
}, 60_000);

test("a proxy serves health at its port on loopback, and works without health if that port is taken", async () => {
  const port = await freePort();
  let count = 0;
  const start = (...args: readonly string[]): Program => {
    const state = join(folder, `state-${count++}`);
    const all = ["--api", watcher.address, "--node-name", "n1", "--state-dir", state, ...args];
    return startProgram(main, all, { HEALTH_PORT: `${port}` });
  };
  await using watcher = await play();
  const first = start();
  await first.printed("full watcher some: a/web\n");
  expect((await fetch(`http://127.0.0.1:${port}/livez`)).status).toBe(200);
  const second = start();
  await second.printed("full watcher some: a/web\n");
  expect(second.stderr()).toContain("health is not served: trying again");
  const third = start("--healthz-bind-address", `127.0.0.1:${port}`);
  expect(await third.ended).toBe(1);
  expect(third.stderr()).toContain("[LISTEN_FAILED]");
  await end(first);
  const answer = () =>
    fetch(`http://127.0.0.1:${port}/livez`).then(
      ({ status }) => status,
      () => 0,
    );
  await expect.poll(answer, { timeout: 30_000 }).toBe(200);
  await end(second);
  const none = start("--healthz-bind-address", "");
  await none.printed("full watcher some: a/web\n");
  await expect(fetch(`http://127.0.0.1:${port}/livez`)).rejects.toThrow();
  await end(none);
}, 60_000);

test.each([
  { exitStatusIsResult: false, ends: "[LISTEN_FAILED]" },
  { exitStatusIsResult: true, ends: "done" },
])("addresses and sockets of a running backend are left to it: $exitStatusIsResult", async (given) => {
  const taken = createServer();
  let context: BackendContext | undefined;
  const backend: BackendCommand = {
    name: "test",
    description: "",
    options: [],
    examples: "",
    exitStatusIsResult: () => given.exitStatusIsResult,
    makeTask: (_options, parts) => {
      context = parts;
      return { name: "test", run: (signal) => (given.exitStatusIsResult ? Promise.resolve() : aborted(signal)) };
    },
  };
  const healthzBindAddress = `127.0.0.1:${await listen(taken)}`;
  const options = { api: "unix:///run/kpng.sock", healthzBindAddress, inspectSocket: "/run/inspect.sock" };
  const run = serveBackend(backend, options, AbortSignal.timeout(20_000));
  expect(await run.then(() => "done", String)).toContain(given.ends);
  taken.close();
  expect(context?.inspectSocket).toBe(given.exitStatusIsResult ? undefined : options.inspectSocket);
});
