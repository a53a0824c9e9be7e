import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { silence, startFakeWatcher } from "../testing/fake-watcher.ts";
import { putService, reset, sync } from "../testing/ops.ts";
import { type Program, startProgram } from "../testing/program.ts";
import type { BackendCommand, BackendContext } from "./backend-command.ts";
import { connectionOptions } from "./backend-options.ts";
import { prepareBackend } from "./run-backend.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-proxy-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const main = new URL("../testing/proxy-main.ts", import.meta.url);

async function unusedAddress(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${port}`;
}

const play = () =>
  startFakeWatcher((request) =>
    request.index === 0 ? [reset, putService("a/web"), sync(1n, "run")] : silence(request),
  );

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
    return { status: response.status, text: await response.text() };
  };
  {
    await using watcher = await play();
    const program = start(gone, watcher.address);
    await program.printed("full watcher all: a/web\n");
    expect(program.stderr()).toContain('"field":"portRange","reason":"kpng has no such option"');
    const healthz = await ask("/healthz");
    // The view of this watcher has no Node, so the cluster does not know the node.
    expect(healthz.status).toBe(503);
    expect(JSON.parse(healthz.text)).toMatchObject({ healthy: true, nodeEligible: false, reason: expect.any(String) });
    expect((await ask("/livez")).status).toBe(200);
    expect((await ask("/readyz")).status).toBe(200);
    expect((await ask("/proxyMode")).text).toBe("iptables");
    expect((await ask("/metrics")).text).toContain('kubeproxy_proxy_healthz_total{code="503"} 1\n');
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

test("a configuration file with an invalid value ends the program with an error that names the field", async () => {
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\niptables: {masqueradeAll: 1}\n",
  );
  const program = startProgram(main, ["--config", config, "--state-dir", "none"]);
  expect(await program.ended).toBe(1);
  expect(program.stderr()).toContain("[BAD_CONFIG] --config: iptables.masqueradeAll 1: expected true or false");
});

const options = {
  api: "unix:///run/kpng/watcher.sock",
  healthzBindAddress: "127.0.0.1:10272",
  metricsBindAddress: "127.0.0.1:10273",
  inspectSocket: "/run/kpng/inspect.sock",
};

/** Returns the number of servers beside a backend, and the inspection socket that it was given. */
function prepared(exitStatusIsResult: boolean): {
  readonly servers: number;
  readonly inspectSocket: string | undefined;
} {
  let given: BackendContext | undefined;
  const backend: BackendCommand = {
    name: "test",
    description: "",
    options: [],
    examples: "",
    exitStatusIsResult: () => exitStatusIsResult,
    makeTask: (_options, context) => {
      given = context;
      return { name: "test", run: () => Promise.resolve() };
    },
  };
  const parts = { log: createLog(), health: new Health(), metrics: new Registry() };
  const { companionTasks } = prepareBackend(backend, options, parts);
  return { servers: companionTasks.length, inspectSocket: given?.inspectSocket };
}

test("a run whose exit status is its result takes neither the addresses nor the socket of a running backend", () => {
  expect(prepared(true)).toEqual({ servers: 0, inspectSocket: undefined });
});

test("a backend serves health and metrics, and inspection", () => {
  expect(prepared(false)).toEqual({ servers: 2, inspectSocket: "/run/kpng/inspect.sock" });
});

test.each(["--max-msg-size"])("%s rejects a number that most likely means mebibytes", (name) => {
  const option = connectionOptions.find(({ flags }) => flags.startsWith(`${name} `));
  expect(option?.parse?.("2097152", undefined)).toBe(2_097_152);
  expect(() => option?.parse?.("512", undefined)).toThrow(
    `${name} is a whole number of bytes, at least 1048576 (1 MiB)`,
  );
});
