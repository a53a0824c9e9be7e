import { request } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { deploymentPorts } from "./default-ports.ts";
import { ProxyHealth } from "./proxy-health.ts";
import { proxyObserveTasks } from "./serve-proxy-health.ts";

async function unusedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Asks for a path as it is, which fetch does not do. */
async function statusOf(address: string, path: string): Promise<number | undefined> {
  const { hostname, port } = new URL(`http://${address}`);
  const answer = Promise.withResolvers<number | undefined>();
  request({ hostname, port, path }, (response) => {
    response.resume();
    answer.resolve(response.statusCode);
  })
    .on("error", answer.reject)
    .end();
  return answer.promise;
}

test("probes are answered and counted under kube-proxy's names", async () => {
  const proxyHealth = new ProxyHealth({ families: ["v4"] });
  const metrics = new Registry();
  const health = new Health();
  health.setWaiting("iptables", "not yet synced");
  const address = `127.0.0.1:${await unusedPort()}`;
  const addresses = { healthzBindAddress: address, metricsBindAddress: address };
  const tasks = proxyObserveTasks(addresses, { proxyHealth, health, metrics, mode: "iptables" });
  expect(tasks.length).toBe(1);
  const stop = new AbortController();
  const running = tasks[0]?.run(stop.signal);
  const ask = async (path: string) => {
    const response = await fetch(`http://${address}${path}`);
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  const healthz = await ask("/healthz");
  expect([healthz.status, healthz.headers.get("x-content-type-options")]).toEqual([200, "nosniff"]);
  expect(JSON.parse(healthz.text)).toMatchObject({ nodeEligible: true, healthy: true });
  proxyHealth.queued({
    view: view([], { isEligible: false }),
    changes: [],
    isFirst: true,
    revision: 1n,
    instance: "x",
  });
  expect((await ask("/healthz")).status).toBe(503);
  expect((await ask("/livez")).status).toBe(200);
  expect((await ask("/readyz")).status).toBe(503);
  expect((await ask("/proxyMode")).text).toBe("iptables");
  expect(await statusOf(address, "//")).toBe(404);
  expect((await ask("/livez?verbose")).status).toBe(200);
  const text = (await ask("/metrics")).text;
  expect(text).toContain('kubeproxy_proxy_healthz_total{code="200"} 1\nkubeproxy_proxy_healthz_total{code="503"} 1\n');
  expect(text).toContain('kubeproxy_proxy_livez_total{code="200"} 2\n');
  expect(text).toContain('kpng_part_ready{part="iptables"} 0\n');
  expect(text).toMatch(/^kpng_build_info\{version="\d+\.\d+\.\d+[^"]*",nodejs="v\d+[^"]*"\} 1$/m);
  stop.abort();
  await running;
});

test("without an address nothing is served", () => {
  const options = { proxyHealth: new ProxyHealth({ families: [] }), health: new Health(), metrics: new Registry() };
  expect(proxyObserveTasks({}, { ...options, mode: "nft" })).toEqual([]);
});

test("the assigned ports differ from each other and from those of Kubernetes components", () => {
  const ports = Object.values(deploymentPorts).flatMap(({ healthz, metrics }) => [healthz, metrics]);
  expect(new Set([...ports, 10_248, 10_249, 10_250, 10_255, 10_256, 10_257, 10_258, 10_259, 10_260]).size).toBe(
    ports.length + 9,
  );
});
