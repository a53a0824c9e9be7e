import { pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { expect, onTestFinished, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import type { ApiClient } from "./api-client.ts";
import { describeCluster } from "./describe-cluster.ts";
import { createNode, createService, createSlice, slicesPath } from "./objects.ts";
import { freePorts } from "./ports.ts";
import { TcpProxy } from "./tcp-proxy.ts";
import { until } from "./until.ts";

// Two watchers and a node as real processes. One watcher reaches the API server through a proxy that can be frozen.

/** For each wait: all programs share two cores. */
const patienceMs = 60_000;

function kpng(...args: string[]): Program {
  const program = startProgram(pathToFileURL(programFile("cli")), args);
  onTestFinished(async () => {
    program.kill();
    await program.ended;
  });
  return program;
}

/** Addresses of the Service's endpoint that the node has printed, without repetitions in a row. */
function addressesIn(node: Program): readonly string[] {
  const addresses = [...node.stdout().matchAll(/"10\.3\.0\.(\d+)"/g)].map(([, last = ""]) => `.${last}`);
  return addresses.filter((address, index) => address !== addresses[index - 1]);
}

async function setEndpoint(api: ApiClient, last: number): Promise<void> {
  const endpoints = [{ addresses: [`10.3.0.${last}`], conditions: { ready: true } }];
  await api.patch(`${slicesPath()}/web`, { endpoints });
}

async function setAnnotation(api: ApiClient, value: string): Promise<void> {
  await api.patch(`${slicesPath()}/web`, { metadata: { annotations: { count: value } } });
}

await describeCluster("a node with two watchers", { hasControllers: false }, (cluster) => {
  test("does not go back: one watcher frozen, the other restarted, and etcd restored from a backup", {
    timeout: 300_000,
  }, async () => {
    const { api, apiServer, etcd, kubeconfig } = cluster();
    await createNode(api, "node-1");
    await createService(api, { name: "web" });
    await createSlice(api, { name: "web", service: "web", addresses: ["10.3.0.1"] });
    await etcd.save();
    await until("the API server has its etcd again", () => api.get(`${slicesPath()}/web`), patienceMs);
    const proxy = await TcpProxy.start(apiServer.url);
    onTestFinished(() => proxy.stop());
    const [portA = 0, portB = 0, healthB = 0, metrics = 0, metricsOfOther = 0] = await freePorts(5);
    const watcher = (config: string, port: number, ...args: string[]): Program =>
      kpng("kube", "--kubeconfig", config, "to-api", "--listen", `tcp://127.0.0.1:${port}`, ...args);
    const startA = (): Program => watcher(kubeconfig("admin"), portA);
    const a = startA();
    const frozenConfig = kubeconfig("admin", { server: proxy.url });
    const b = watcher(frozenConfig, portB, "--healthz-bind-address", `127.0.0.1:${healthB}`);
    await Promise.all([a.said("listening"), b.said("listening")]);
    const startNode = (acceptAfter: string, port: number): Program =>
      kpng(
        ...["local", "--api", `127.0.0.1:${portA},127.0.0.1:${portB}`, "to-json", "--node-name", "node-1"],
        ...["--error-delay", "100ms", "--accept-older-after", acceptAfter],
        ...["--metrics-bind-address", `127.0.0.1:${port}`],
      );
    const prints = (node: Program, ...addresses: readonly string[]): Promise<unknown> =>
      until(
        `the node prints ${addresses}`,
        () => addressesIn(node).join() === addresses.join(),
        patienceMs,
        () => `it printed ${addressesIn(node)}\n${node.stderr().slice(-10_000)}`,
      );
    const counts = (node: Program, name: string, port: number): Promise<unknown> =>
      until(
        `${name} counts`,
        async () => new RegExp(`^${name} [1-9]`, "m").test(await text(port, "metrics")),
        patienceMs,
        () => node.stderr().slice(-10_000),
      );
    // A busy machine needs more than a minute for some steps, and the node must not accept an older state meanwhile.
    const node = startNode("1h", metrics);
    await prints(node, ".1");

    // B is frozen, notices it although nothing else fails, and stays ready. The node ends up at A.
    proxy.mode = "black-hole";
    await setEndpoint(api, 2);
    await until(
      "B is stale",
      async () => /source\/current[^}]*"isHealthy":false/.test(await text(healthB, "healthz")),
      patienceMs,
    );
    expect((await fetch(`http://127.0.0.1:${healthB}/readyz`)).status).toBe(200);
    await prints(node, ".1", ".2");

    // A restarts. Meanwhile B offers only .1.
    a.kill();
    await a.ended;
    await counts(node, "kpng_backend_older_offers_total", metrics);
    const again = startA();
    await again.said("listening");
    await setEndpoint(api, 3);
    await prints(node, ".1", ".2", ".3");

    // B catches up when the connection is back, and takes over.
    proxy.mode = "forward";
    await until(
      "B is current",
      async () => /source\/current[^}]*"isHealthy":true/.test(await text(healthB, "healthz")),
      patienceMs,
    );
    again.kill();
    await again.ended;
    // Far ahead of the backup: the restored server also counts, and must not reach the version meanwhile.
    for (let count = 0; count < 300; count++) await setAnnotation(api, String(count));
    await setEndpoint(api, 4);
    await prints(node, ".1", ".2", ".3", ".4");

    // After a restore, everything that watchers offer is older. A node accepts it when its time is over.
    const other = startNode("5s", metricsOfOther);
    await prints(other, ".4");
    await apiServer.kill();
    await etcd.restore();
    await apiServer.start();
    await counts(other, "kpng_backend_older_states_accepted_total", metricsOfOther);
    await prints(other, ".4", ".1");
    await setEndpoint(api, 5);
    await prints(other, ".4", ".1", ".5");
    expect(other.stderr()).toContain("older state accepted");
    expect(addressesIn(node)).toEqual([".1", ".2", ".3", ".4"]);
  });
});

async function text(port: number, path: string): Promise<string> {
  return (await fetch(`http://127.0.0.1:${port}/${path}`)).text();
}
