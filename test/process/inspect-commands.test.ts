import { cpSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { gunzipSync } from "node:zlib";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { runKpng } from "../docs/run-kpng.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// Watchers are processes on a machine that may be busy. Commands that end by themselves run in this process.
vi.setConfig({ testTimeout: 120_000, expect: { poll: { timeout: 60_000 } } });

const { at, start } = usePrograms();
beforeEach(() => {
  cpSync(resolve("test/fixtures/kpng/input.yaml"), input());
  vi.stubEnv("KPNG_API", api());
});
afterEach(() => {
  vi.unstubAllEnvs();
});

const kpng = (...args: string[]): Program => start(kpngMain, args);
const api = (): string => `unix://${at("api.sock")}`;
const input = (): string => at("state.yaml");

/** Returns the output of a command that succeeds. */
async function output(...args: string[]): Promise<string> {
  const { code, out, said } = await runKpng(args);
  expect(code, said).toBe(0);
  return out;
}

async function startWatcher(...more: string[]): Promise<Program> {
  const watcher = kpng("file", "-i", input(), "to-api", "--listen", api(), ...more);
  await watcher.said('"msg":"input read"');
  return watcher;
}

function edit(from: string, to: string): void {
  const text = readFileSync(input(), "utf8");
  writeFileSync(at("next.yaml"), text.replaceAll(from, to));
  renameSync(at("next.yaml"), input());
}

test("commands answer what a watcher holds, how far its node is, and what its backend does; a watch survives a restart", async () => {
  const watcher = await startWatcher();
  const socket = `unix://${at("backend.sock")}`;
  const args = ["--api", api(), "--node-name", "n1", "--error-delay", "50ms", "--inspect-socket", at("backend.sock")];
  start("services/backend-json/src/main.ts", args);
  const watch = kpng("get", "nodes", "-w", "-o", "json");
  await expect.poll(() => watch.stdout()).toMatch(/"name":"n1".*"state":"current".*"appliedRevision":1\b/);
  edit("10.1.0.2", "10.1.0.22");
  await expect.poll(() => watch.stdout()).toMatch(/"name":"n1".*"state":"current".*"appliedRevision":2/);
  expect(await output("get", "nodes", "--state", "absent")).toMatch(/^NAME +STATE.*\nn2 +absent[^\n]*\n$/);
  expect(await output("get", "sub")).toMatch(
    /^ID +NODE +KIND +PROGRAM +PEER +STATE +APPLIED +BEHIND +LAG +AGE +ERROR\n1 +n1 +node +kpng-json +- +current +2 +0 /,
  );
  const changes = await output("get", "changes", "--service", "default/web", "-o", "json", "--limit", "1");
  expect(JSON.parse(changes)).toMatchObject({
    items: [{ revision: 2, source: "file", toldCount: 1, appliedCount: 1 }],
  });
  expect(await output("trace", "default/web")).toMatch(
    /revision 2 .*endpoints default\/web .*\n +STAGE[\s\S]*\n +commit[\s\S]*\n +total/,
  );
  expect(await output("status")).toMatch(/^watcher +revision 2,[^\n]*\n[\s\S]*\nnodes +1 current, 1 absent\n/);
  expect(await output("describe", "node", "n1")).toMatch(/^Name: +n1\nState: +current\n[\s\S]*kpng-json/);
  expect(await output("top")).toMatch(
    /^watcher +revision 2,[\s\S]*Not up to date[^\n]*:\n +NAME[^\n]*\n +n2 +absent[\s\S]*Latest changes:\n/,
  );
  const state = JSON.parse(await output("get", "backend", "--api", socket, "-o", "json"));
  expect(state).toMatchObject({ program: "kpng-json", nodeName: "n1", appliedRevision: 2, serviceCount: 2 });
  expect(await output("get", "backend", "--api", socket)).toMatch(/^PROGRAM .*\nkpng-json +n1 +yes +2 +2 +2 /);
  const rules = await runKpng(["get", "rules", "--api", socket]);
  expect(rules).toMatchObject({ code: 1, said: expect.stringContaining("this backend has no rules") });

  for (const rows of ["nodes", "subscribers", "endpoints", "changes"])
    expect(await output("get", rows, "-o", "wide")).toMatch(/^[A-Z].* [A-Z-]+\n.* /);
  expect(await output("get", "backend", "--api", socket, "-o", "wide")).toMatch(/ VERSION +ERROR\nkpng-json .* -\n$/);
  expect(await output("version")).toMatch(/^kpng \S+ \(Node\.js [^\n]*\)\nwatcher \S+\n$/);
  expect(JSON.parse(await output("version", "-o", "json"))).toHaveProperty("watcherVersion");
  const unlabelled = await runKpng(["get", "services", "-l", "app=web"]);
  expect(unlabelled.said).toContain("start it with --with-service-labels '*'");
  expect((await runKpng(["describe", "node", "n9"])).said).toContain('node "n9" not found');

  for (const unknown of [
    ["get", "view", "unknown"],
    ["explain", "--node", "unknown", "10.0.0.1:80"],
  ]) {
    const { code, said } = await runKpng(unknown);
    expect([code, said]).toEqual([0, expect.stringContaining('warning: node "unknown" not found in the cluster')]);
  }

  const unknown = await runKpng(["explain", "--node", "n1", "default/unknown"]);
  expect(unknown).toMatchObject({ code: 1, said: expect.stringContaining('Service "default/unknown" not found') });

  const report = at("report.jsonl.gz");
  await output("bug-report", "-o", report);
  expect(statSync(report).mode & 0o777).toBe(0o600);
  const lines = gunzipSync(readFileSync(report)).toString().trim().split("\n");
  const rows = lines.map((line) => JSON.parse(line)).filter(({ kind }) => kind === "rows");
  expect(rows).toMatchObject([
    { of: "subscribers" },
    { of: "changes" },
    { of: "versions", rows: [{ nodejs: process.version }] },
    { of: "nodes", rows: [{ name: "n1" }, { name: "n2" }] },
    { of: "findings" },
  ]);
  expect(rows.at(-1).rows.map(({ subject }: { subject: string }) => subject)).toContain("service/default/noeps");
  expect(await output("replay", "-i", report, "get", "svc", "-o", "name")).toBe(
    "service/default/noeps\nservice/default/web\n",
  );

  watcher.kill();
  await expect.poll(() => watch.stderr()).toContain("connection lost");
  await startWatcher();
  await expect.poll(() => watch.stderr()).toContain("connected again");
  // The backend acknowledges to the new watcher, although it has nothing to apply.
  await expect.poll(() => output("get", "nodes", "n1")).toMatch(/\nn1 +current +1 /);
  watch.stop();
  expect(await watch.ended).toBe(0);
});

test("the error names a watcher that is down, or one without the inspection service", async () => {
  for (const words of [
    ["get", "nodes"],
    ["get", "endpoints", "-w"],
  ]) {
    const { code, said } = await runKpng(words);
    expect([code, said]).toEqual([1, expect.stringMatching(/^Error: .*api\.sock: request failed: .*ENOENT.*\nHint: /)]);
  }
  expect(await runKpng(["version"])).toMatchObject({
    code: 0,
    said: expect.stringMatching(/^warning: no .*api\.sock: /),
  });
  await startWatcher("--inspect-api=false");
  const { code, said } = await runKpng(["get", "nodes"]);
  expect([code, said]).toEqual([1, expect.stringMatching(/^Error: .*--inspect-api=false/)]);
});

/** Starts a recording, and resolves when it has received an edited endpoint. */
async function recordChange() {
  const file = at("r.jsonl.gz");
  const record = kpng("record", "--for", "5m", "-o", file);
  const recorded = (): Promise<string> => output("get", "subscribers", "-o", "json");
  await expect.poll(recorded).toMatch(/kpng record[^{}]*"receivedRevision": 1\b/);
  edit("10.1.0.2", "10.1.0.22");
  await expect.poll(recorded).toMatch(/kpng record[^{}]*"receivedRevision": 2\b/);
  return { file, record };
}

test("a recording that Ctrl-C ends is kept, also if npx passes the signal on a second time", async () => {
  await startWatcher();
  const { file, record } = await recordChange();
  record.signal("SIGINT");
  record.signal("SIGTERM");
  expect(await record.ended, record.stderr()).toBe(0);
  expect(record.stderr()).toBe(`recording written to ${file}\n`);
  const replay = kpng("replay", "-i", file, "--speed", "0", "to-local", "to-json", "--node-name", "n1");
  await expect.poll(() => replay.stdout()).toContain("10.1.0.22");
  expect(await output("replay", "-i", file, "get", "endpoints")).toContain("10.1.0.22");
  expect(process.kill(replay.pid, 0), "a backend of a recording stays until it is interrupted").toBe(true);
  replay.signal("SIGINT");
  expect(await replay.ended).toBe(0);
});

test("a recording that is interrupted while its watcher hangs has everything up to then", async () => {
  const watcher = await startWatcher();
  const { file, record } = await recordChange();
  watcher.signal("SIGSTOP");
  record.signal("SIGINT");
  expect(await record.ended, record.stderr()).toBe(0);
  expect(await output("replay", "-i", file, "get", "endpoints")).toContain("10.1.0.22");
});

describe("commands read files without a watcher", () => {
  const ask = (...words: string[]): Promise<string> => output("file", "-i", input(), ...words);

  test("their contents, the view of a node, and the path of a packet", async () => {
    expect(await ask("get", "svc", "default/web")).toMatch(/\ndefault +web +LoadBalancer/);
    expect(await ask("get", "nodes", "-l", "a=b", "-o", "name")).toBe("node/n1\n");
    const view = await ask("get", "view", "n1", "--service", "default/web");
    expect(view).toMatch(/10\.1\.0\.2:8080 +web-2 +n2 +used, but not with policy Local: it is ready/);
    expect(await ask("explain", "--node", "n1", "web:http")).toBe(
      await ask("explain", "--node", "n1", "default/web:http"),
    );
    const explained = await ask("explain", "--node", "n1", "--from", "outside", "192.0.2.1:80");
    expect(explained).toMatch(/^outside → 192\.0\.2\.1:80\/TCP: FORWARD\n/);
    expect(explained).toMatch(/externalTrafficPolicy is Local: only endpoints on this node\./);
  });

  test("a port's name stands for its protocol, too", async () => {
    const ports = "[{name: dns, protocol: UDP, port: 53}, {name: dns-tcp, protocol: TCP, port: 53}]";
    const spec = `{clusterIP: 10.0.0.53, clusterIPs: [10.0.0.53], ports: ${ports}}`;
    writeFileSync(input(), `apiVersion: v1\nkind: Service\nmetadata: {namespace: a, name: dns}\nspec: ${spec}\n`);
    const explain = (...more: string[]) => ["explain", "--node", "n1", ...more];
    expect(await ask(...explain("a/dns:dns-tcp"))).toMatch(/10\.0\.0\.53:53\/TCP/);
    expect(await ask(...explain("a/dns:dns"))).toMatch(/10\.0\.0\.53:53\/UDP/);
    expect(await ask(...explain("a/dns:53", "--protocol", "tcp"))).toMatch(/10\.0\.0\.53:53\/TCP/);
    const { code, said } = await runKpng(["file", "-i", input(), ...explain("a/dns:dns", "--protocol", "tcp")]);
    expect([code, said]).toEqual([1, expect.stringContaining('--protocol TCP: port "dns" of "a/dns" is UDP')]);
  });

  test("everything about a Service", async () => {
    expect(await ask("describe", "service", "default/web")).toMatch(
      /^Namespace: +default\nName: +web\n[\s\S]*\nEndpoints:\n +NAMESPACE [\s\S]*\nLast changes:\n/,
    );
  });

  test.each([
    [["get", "services", "none"], 1, /^Error: Service "none" not found\n$/],
    [["get", "svc", "none", "-n", "default"], 1, /^Error: Service "none" not found in namespace "default"\n$/],
    [["get", "svc", "-n", "default", "-A"], 1, /--all-namespaces exclude each other/],
    [["get", "svc", "web", "-l", "app=web"], 1, /give names or --selector, not both/],
    [["get", "svc", "web", "noeps", "-w"], 1, /--watch follows one name or all/],
    [["describe", "service", "none"], 1, /^Error: Service "none" not found\n$/],
    [["describe", "service", "web:80"], 2, /a port is part of a packet: kpng explain --node NODE web:80/],
    [["explain", "--node", "n1", "10.0.0.1"], 1, /expected address:port/],
    [["explain", "10.0.0.1:80"], 1, /--node is required/],
    [["explain", "--node", "n1", "default/1my.svc:80"], 1, /Service "default\/1my\.svc" not found/],
    [["explain", "--node", "n1", "default/web:nope"], 1, /no port "nope" in destination .*: its ports are http/],
    [["get", "nodes", "--state", "tired"], 2, /'tired' is invalid. expected one of current, received, behind/],
    [["get", "nodes", "-o", "xml"], 2, /expected one of table, wide, json, yaml, name; jq formats/],
    [["get", "services", "default/web", "-n", "other"], 1, /"default\/web" and --namespace "other" name different/],
    [["get", "view", ""], 2, /argument 'node'. a node name must not be empty/],
    [["get", "nodes", ""], 2, /argument 'name'. the value is empty; omit it to select all/],
    [
      ["get", "services", "-n", "a/b"],
      2,
      /'-n, --namespace <name>' argument 'a\/b' is invalid. expected the name of a/,
    ],
    [
      ["get", "changes", "--service", "a/b/c"],
      2,
      /'--service <name>' argument 'a\/b\/c' is invalid. expected a Service/,
    ],
    [
      ["explain", "--node", "n1", "--from", "", "a/b"],
      2,
      /'--from <sender>' argument '' is invalid. the value is empty/,
    ],
  ])("%j is rejected with the reason", async (args, code, message) => {
    const result = await runKpng(["file", "-i", input(), ...args]);
    expect([result.code, result.said]).toEqual([code, expect.stringMatching(message)]);
  });

  test("an empty environment variable is rejected", async () => {
    vi.stubEnv("KPNG_NAMESPACE", "");
    const { code, said } = await runKpng(["file", "-i", input(), "get", "services"]);
    expect([code, said]).toEqual([2, expect.stringContaining("value '' from env 'KPNG_NAMESPACE' is invalid")]);
  });
});
