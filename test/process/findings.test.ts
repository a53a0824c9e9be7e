import { copyFileSync, writeFileSync } from "node:fs";
import { makeCertificates } from "@kpng/process/testing/certificates.ts";
import { expect, test, vi } from "vitest";
import { freePort } from "../cluster/ports.ts";
import { runKpng } from "../docs/run-kpng.ts";
import { ApiServer } from "./api-server.ts";
import { expectGreen, expectNamed, replaceFile, startJson, startWatcher } from "./finding-surfaces.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// Everything that can break around a watcher: its input, its servers, its certificate, and other replicas.

vi.setConfig({ testTimeout: 180_000, expect: { poll: { timeout: 60_000, interval: 100 } } });

const programs = usePrograms();
const { at, start } = programs;

const good = `
nodes: [{ name: n1, podcidrs: [10.1.0.0/24] }]
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

/** Replaces the input of the watcher. */
function write(text: string): void {
  replaceFile(at("live.yaml"), text);
}

test("an input that breaks is named by every surface until it is repaired", async () => {
  write(good);
  const watched = await startWatcher(programs, ["file", "-i", at("live.yaml")]);
  startJson(programs, watched.api, "n1");
  await expectGreen(watched);
  write(`${good}  broken: [`);
  const says = `source/file: ${at("live.yaml")}:13:12`;
  await expectNamed(watched, { code: "part-failing", severity: "error", says, healthStatus: 503 });
  write(good);
  await expectGreen(watched, "after the repair");
});

/** A headless Service, which needs no endpoints, as an API server sends it. */
const webObject = (name: string, port = 80) => ({
  metadata: { name, namespace: "default" },
  spec: { type: "ClusterIP", clusterIP: "None", clusterIPs: ["None"], ports: [{ port }] },
});

test("an API server that refuses, is silent, loses objects or has invalid ones is named until it is repaired", async () => {
  const server = await ApiServer.start();
  const all = Array.from({ length: 20 }, (_, index) => webObject(`web-${index}`));
  server.set("services", all);
  server.set("nodes", [{ metadata: { name: "n1" }, spec: { podCIDRs: ["10.1.0.0/24"] } }]);
  server.beSilent(true);
  const watched = await startWatcher(programs, ["kube", "--server", server.url, "--stale-after", "1s"]);
  const failing = { code: "part-failing", severity: "error", healthStatus: 503 } as const;
  const says = "source/kube/nodes: waiting for the first list";
  await expectNamed(watched, { ...failing, healthStatus: 200, says, readyStatus: 503 });
  server.refuse("nodes", true);
  server.beSilent(false);
  await expectNamed(watched, {
    ...failing,
    says: "source/kube/nodes: not allowed to list nodes (403)",
    readyStatus: 503,
  });
  server.refuse("nodes", false);
  startJson(programs, watched.api, "n1");
  await expectGreen(watched, "after nodes may be listed");

  server.refuse("services", true);
  await expectNamed(watched, { ...failing, says: "source/kube/services: not allowed to list services (403)" });
  server.refuse("services", false);
  await expectGreen(watched, "after services may be listed");

  server.set("services", []);
  await expectNamed(watched, { ...failing, says: "a list would delete 20 of 20 services" });
  server.set("services", all);
  await expectGreen(watched, "after the Services are back");

  server.set("services", [...all, webObject("bad", 99_999)]);
  await expectNamed(watched, {
    ...{ code: "part-warning", severity: "warning", isInHealth: true },
    says: "objects/services: invalid: default/bad",
  });
  server.set("services", all);
  await expectGreen(watched, "after the invalid Service is gone");

  server.beSilent(true);
  await expectNamed(watched, { ...failing, says: "source/current: the state may be out of date" });
  server.beSilent(false);
  await expectGreen(watched, "after the API server answers");
});

test("a relay names its upstream when that is frozen, serves what it has, and goes on when the upstream does", async () => {
  write(good);
  const upstream = ["file", "-i", at("live.yaml"), "to-api", "--listen", `unix://${at("up.sock")}`];
  const frozen = start(kpngMain, upstream);
  const relay = ["api", "--api", `unix://${at("up.sock")}`, "--stale-after", "1s"];
  const watched = await startWatcher(programs, relay);
  startJson(programs, watched.api, "n1");
  await expectGreen(watched);
  // Its connections stay open, and the kernel accepts further ones.
  frozen.signal("SIGSTOP");
  await expectNamed(watched, {
    ...{ code: "part-failing", severity: "error", healthStatus: 503 },
    says: "source/current: the state may be out of date",
  });
  const services = async () => (await runKpng(["get", "services", "--api", watched.api, "-o", "name"])).out;
  expect(await services()).toBe("service/default/web\n");
  write(good.replace("web", "later"));
  frozen.signal("SIGCONT");
  await expectGreen(watched, "after the upstream watcher answers");
  await expect.poll(services).toBe("service/default/later\n");
});

test("a certificate that expires soon or has expired, and files that cannot replace it, are named until there are good ones", async () => {
  const files = makeCertificates();
  const use = ({ key, crt }: { readonly key: string; readonly crt: string }): void => {
    copyFileSync(key, at("tls.key"));
    copyFileSync(crt, at("tls.crt"));
  };
  use(files.clientWith([], 2));
  write(good);
  const tls = ["--listen-tls-key", at("tls.key"), "--listen-tls-crt", at("tls.crt"), "--listen-tls-ca", files.ca];
  const listen = ["--listen", `127.0.0.1:${await freePort()}`, ...tls];
  const watched = await startWatcher(programs, ["file", "-i", at("live.yaml")], listen);
  startJson(programs, watched.api, "n1");
  const warning = { code: "part-warning", severity: "warning", isInHealth: true } as const;
  await expectNamed(watched, { ...warning, says: "certificate: expires at " });
  writeFileSync(at("tls.crt"), "not a certificate");
  await expectNamed(watched, { ...warning, says: "certificate: new TLS files are unusable" });
  // It expires when it is issued.
  use(files.clientWith([], 0));
  const says = "certificate: expired at ";
  await expectNamed(watched, { code: "part-failing", severity: "error", healthStatus: 503, says });
  use(files.server);
  await expectGreen(watched, "after the renewal");
});

test("all replicas are asked: a node without a backend follows none, and differences are named", async () => {
  write(good);
  const { api } = await startWatcher(programs, ["file", "-i", at("live.yaml")]);
  writeFileSync(at("other.yaml"), good);
  const other = `unix://${at("other.sock")}`;
  const second = start(kpngMain, ["file", "-i", at("other.yaml"), "to-api", "--listen", other]);
  await second.said('"msg":"input read"');
  startJson(programs, api, "n1");
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
  expect((await both("status")).out).toMatch(/^ +warning watcher unix:.*other\.sock: it holds 0 Services/m);
  const differing = await both("get", "services", "-o", "name");
  expect([differing.out, differing.said]).toEqual([
    "service/default/web\n",
    expect.stringMatching(/^warning: .*api\.sock and .*other\.sock answer differently/),
  ]);
  expect((await both("get", "backend")).said).toContain("kpng get backend asks one backend, and there are several");
  second.kill();
  await second.ended;
  const { out, code } = await both("analyze");
  expect([code, out]).toEqual([1, expect.stringMatching(/error +watcher unix:.*other\.sock +it does not answer/)]);

  expect((await both("status")).out).toMatch(/^ +error watcher unix:.*other\.sock: it does not answer/m);

  const trace = await both("trace");
  expect([trace.code, trace.said]).toEqual([0, expect.stringMatching(/^warning: .*other\.sock does not answer: /)]);
});
