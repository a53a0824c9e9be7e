import { renameSync, writeFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { runKpng } from "../docs/run-kpng.ts";
import { kpngMain, usePrograms } from "./programs.ts";

vi.setConfig({ testTimeout: 120_000, expect: { poll: { timeout: 60_000 } } });

const { at, start } = usePrograms();

const good = `
nodes: [{ name: n1 }]
services:
- service:
    namespace: default
    name: web
    type: ClusterIP
    ips: { clusterips: { v4: [10.0.0.1] } }
    ports: [{ protocol: 1, port: 80, targetport: 8080 }]
  endpoints:
  - topology: { node: n1 }
    endpoint: { ips: { v4: [10.1.0.1] } }
`;

/** Replaces the input, in one step. */
function write(text: string): void {
  writeFileSync(at("next.yaml"), text);
  renameSync(at("next.yaml"), at("live.yaml"));
}

/** What each place that reports problems says. */
async function surfaces(api: string, status: string) {
  const query = (...args: string[]) => runKpng([...args, "--api", api]);
  const page = await fetch(`${status}/kpng.inspect.v1.InspectService/ListFindings`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  const metrics = await (await fetch(`${status}/metrics`)).text();
  const analyze = await query("analyze");
  const health = await fetch(`${status}/healthz`);
  return {
    status: (await query("status")).out,
    analyze: analyze.out,
    exitCode: analyze.code,
    page: await page.text(),
    errors: Number(/^kpng_watcher_findings\{severity="error"\} (\d+)$/m.exec(metrics)?.[1]),
    health: await health.text(),
    healthStatus: health.status,
  };
}

async function startWatcher(): Promise<{ readonly api: string; readonly status: string; readonly freePort: number }> {
  write(good);
  const [port = 0, freePort = 0] = await freePorts(2);
  const api = `unix://${at("api.sock")}`;
  const bind = ["--healthz-bind-address", `127.0.0.1:${port}`, "--metrics-bind-address", `127.0.0.1:${port}`];
  const watcher = start(kpngMain, ["file", "-i", at("live.yaml"), "to-api", "--listen", api, ...bind]);
  await watcher.said('"msg":"input read"');
  return { api, status: `http://127.0.0.1:${port}`, freePort };
}

test("an input that breaks, and a Service without a ready endpoint, are named by every surface until they are repaired", async () => {
  const { api, status } = await startWatcher();
  start("services/backend-json/src/main.ts", ["--api", api, "--node-name", "n1", "--log-level", "off"]);
  const look = () => surfaces(api, status);
  const isGreen = { exitCode: 0, errors: 0, healthStatus: 200 };
  await expect.poll(look).toMatchObject({ ...isGreen, analyze: expect.not.stringContaining("error ") });

  write(`${good}  broken: [`);
  const names = expect.stringMatching(/live\.yaml:\d+:\d+/);
  await expect.poll(look).toMatchObject({
    ...{ status: names, analyze: names, exitCode: 1, page: names, errors: 1, health: names, healthStatus: 503 },
  });

  write(good.replace("  - topology", "  - conditions: { ready: false }\n    topology"));
  const notReady = expect.stringContaining("none of its 1 endpoints is ready");
  await expect
    .poll(look)
    .toMatchObject({ status: notReady, analyze: notReady, exitCode: 1, page: notReady, errors: 1, healthStatus: 200 });

  write(good);
  await expect.poll(look).toMatchObject({ ...isGreen, page: expect.not.stringContaining("ERROR") });
});

test("a node that cannot apply a change is named by every surface of its watcher, and by its own health", async () => {
  const { api, status, freePort } = await startWatcher();
  const callout = ["--callout", "/bin/false", "--healthz-bind-address", `127.0.0.1:${freePort}`];
  start("services/backend-callout/src/main.ts", ["--api", api, "--node-name", "n1", ...callout]);
  const names = expect.stringMatching(/node\/n1.*its last attempt to apply a change failed/);
  await expect
    .poll(() => surfaces(api, status))
    .toMatchObject({ status: names, analyze: names, exitCode: 1, page: names, errors: 1, healthStatus: 200 });
  expect((await fetch(`http://127.0.0.1:${freePort}/healthz`)).status).toBe(503);
});

test("all replicas are asked: a node without a backend follows none, and differences are named", async () => {
  const { api } = await startWatcher();
  writeFileSync(at("other.yaml"), good);
  const other = `unix://${at("other.sock")}`;
  const second = start(kpngMain, ["file", "-i", at("other.yaml"), "to-api", "--listen", other]);
  await second.said('"msg":"input read"');
  start("services/backend-json/src/main.ts", ["--api", api, "--node-name", "n1", "--log-level", "off"]);
  const both = (...command: string[]) => runKpng([...command, "--api", api, "--api", other]);
  await expect.poll(async () => (await both("status")).out).toMatch(/^nodes +1 current$/m);
  expect((await runKpng(["analyze", "--api", other])).out).toContain("no backend of this node");
  expect((await both("analyze")).out).not.toContain("no backend of this node");
  expect((await both("status")).out).toMatch(/^replica +unix:.*api\.sock\n[\s\S]*^replica +unix:.*other\.sock$/m);

  const nodes = await both("get", "nodes", "--state", "current,absent");
  expect([nodes.out, nodes.said]).toEqual([expect.stringMatching(/^NAME.*\nn1 +current .*\n$/), ""]);
  expect((await both("get", "services")).said).toBe("");

  writeFileSync(at("other.yaml"), "nodes: [{ name: n1 }]\nservices: []\n");
  await expect
    .poll(async () => (await both("analyze")).out)
    .toMatch(/watcher unix:.*other\.sock +it holds 0 Services, .*, and unix:.*api\.sock 1 Service/);
  const differing = await both("get", "services", "-o", "name");
  expect([differing.out, differing.said]).toEqual([
    "service/default/web\n",
    expect.stringMatching(/^warning: .*api\.sock and .*other\.sock answer differently/),
  ]);
  expect((await both("get", "nodes", "--not-applied", "2")).said).toContain("each watcher counts its own revisions");
  expect((await both("get", "backend")).said).toContain("kpng get backend asks one backend, and there are several");
  second.kill();
  await second.ended;
  const { out, code } = await both("analyze");
  expect([code, out]).toEqual([1, expect.stringMatching(/error +watcher unix:.*other\.sock +it does not answer/)]);

  const trace = await both("trace");
  expect([trace.code, trace.said]).toEqual([0, expect.stringMatching(/^warning: .*other\.sock does not answer: /)]);
});
