import { cpSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// `kpng get`, `explain`, `trace` and `top` as a user starts them. Each start is a process, on a machine that may be
// busy.
vi.setConfig({ testTimeout: 120_000 });

const { at, start } = usePrograms();
beforeEach(() => cpSync(resolve("test/fixtures/kpng/input.yaml"), input()));

const kpng = (...args: string[]): Program => start(kpngMain, args, { KPNG_API: api() });
const api = (): string => `unix://${at("api.sock")}`;
const input = (): string => at("state.yaml");

/** Returns the output of a command that ends by itself. */
async function output(...args: string[]): Promise<string> {
  const program = kpng(...args);
  expect(await program.ended, program.stderr()).toBe(0);
  return program.stdout();
}

async function watcherWithBackend(...more: string[]): Promise<Program> {
  const watcher = kpng("file", "-i", input(), "to-api", "--listen", api(), ...more);
  await watcher.said('"msg":"input read"');
  const backend = start("services/backend-json/src/main.ts", ["--api", api(), "--node-name", "n1"]);
  await expect.poll(() => backend.stdout().split("\n").length).toBe(3);
  return watcher;
}

function edit(from: string, to: string): void {
  const text = readFileSync(input(), "utf8");
  writeFileSync(at("next.yaml"), text.replaceAll(from, to));
  renameSync(at("next.yaml"), input());
}

describe("a running watcher", () => {
  test("answers which revision its nodes have applied, what changed, and how long that took", async () => {
    await watcherWithBackend();
    const watch = kpng("get", "nodes", "-w", "-o", "json");
    await expect.poll(() => watch.stdout().split("\n").filter(Boolean).length).toBe(2);
    edit("10.1.0.2", "10.1.0.22");
    await expect.poll(() => watch.stdout()).toMatch(/"name":"n1".*"state":"current".*"appliedRevision":2/);
    const nodes = await output("get", "nodes", "--not-applied", "2");
    expect(nodes).toMatch(/^NAME +STATE.*\nn2 +absent[^\n]*\n$/);
    expect(await output("get", "sub", "--no-headers")).toMatch(/^1 +n1 +node +kpng-json +- +current +2 +0 /);
    const [change] = JSON.parse(
      await output("get", "changes", "--service", "default/web", "-o", "json", "--limit", "1"),
    );
    expect(change).toMatchObject({ revision: 2, source: "file", toldCount: 1, appliedCount: 1 });
    expect(await output("trace", "default/web")).toMatch(
      /revision 2 .*endpoints default\/web .*\n +STAGE[\s\S]*\n +commit[\s\S]*\n +total/,
    );
    expect(await output("status")).toMatch(/^watcher +revision 2,[^\n]*\n[\s\S]*\nnodes +1 current, 1 absent\n/);
    expect(await output("describe", "node", "n1")).toMatch(/^Name: +n1\n[\s\S]*\nState: +current\n[\s\S]*kpng-json/);
    const top = await output("top");
    expect(top).toMatch(/^revision +2 +synced[\s\S]*Not up to date:\nNAME[^\n]*\nn2 +absent[\s\S]*Latest changes:\n/);
  });

  test("without the inspection service is reported as such", async () => {
    await watcherWithBackend("--inspect-api=false");
    const program = kpng("get", "nodes");
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toMatch(/^Error: .*--inspect-api=false/);
  });

  test("that is down is named in the error", async () => {
    const program = kpng("get", "nodes");
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toMatch(/^Error: .*api\.sock: request failed: .*ENOENT/);
  });
});

test("every command warns about a node that the cluster does not know", async () => {
  await watcherWithBackend();
  const file = at("r.jsonl");
  for (const args of [
    ["record", "--for", "0", "--node", "unknown", "-o", file],
    ["get", "view", "unknown"],
    ["explain", "--node", "unknown", "10.0.0.1:80"],
    ["explain", "--node", "unknown", "10.0.0.1:80", "-o", "json"],
  ]) {
    const program = kpng(...args);
    expect(await program.ended, program.stderr()).toBe(0);
    expect(program.stderr(), args.join(" ")).toContain('warning: node "unknown" not found in the cluster');
  }
  const known = kpng("record", "--for", "0", "--node", "n1", "-o", file);
  expect(await known.ended).toBe(0);
  expect(known.stderr()).toBe(`recording written to ${file}\n`);
});

/** Starts a recording, and resolves when it has received an edited endpoint. */
async function recordChange() {
  const file = at("r.jsonl.gz");
  const record = kpng("record", "--for", "5m", "-o", file);
  const recorded = (): Promise<string> => output("get", "subscribers", "-o", "json");
  await expect.poll(recorded, { timeout: 60_000 }).toMatch(/kpng record[^{}]*"receivedRevision": 1\b/);
  edit("10.1.0.2", "10.1.0.22");
  await expect.poll(recorded, { timeout: 60_000 }).toMatch(/kpng record[^{}]*"receivedRevision": 2\b/);
  return { file, record };
}

test("a recording that Ctrl-C ends is kept, also if npx passes the signal on a second time", async () => {
  await watcherWithBackend();
  const { file, record } = await recordChange();
  record.signal("SIGINT");
  record.signal("SIGTERM");
  expect(await record.ended, record.stderr()).toBe(0);
  expect(record.stderr()).toBe(`recording written to ${file}\n`);
  expect(await output("replay", "-i", file, "get", "endpoints")).toContain("10.1.0.22");
  const replay = kpng("replay", "-i", file, "--speed", "0", "to-local", "to-json", "--node-name", "n1");
  await expect.poll(() => replay.stdout(), { timeout: 60_000 }).toContain("10.1.0.22");
  await new Promise((done) => setTimeout(done, 500));
  replay.signal("SIGINT");
  expect(await replay.ended, "a backend of a recording stays until it is interrupted").toBe(0);
});

test("a recording that is interrupted twice, because its watcher hangs, has everything up to then", async () => {
  const watcher = await watcherWithBackend();
  const { file, record } = await recordChange();
  watcher.signal("SIGSTOP");
  try {
    expect(await record.endedAtOnce(), record.stderr()).toBe(130);
  } finally {
    watcher.signal("SIGCONT");
  }
  expect(await output("replay", "-i", file, "get", "endpoints")).toContain("10.1.0.22");
});

test("a backend answers on its own socket", async () => {
  const socket = at("backend.sock");
  const watcher = kpng("file", "-i", input(), "to-api", "--listen", api());
  await watcher.said('"msg":"input read"');
  const args = ["--api", api(), "--node-name", "n1", "--inspect-socket", socket];
  const backend = start("services/backend-json/src/main.ts", args);
  await expect.poll(() => backend.stdout().split("\n").length).toBe(3);
  const [state] = JSON.parse(await output("get", "backend", "--api", `unix://${socket}`, "-o", "json"));
  expect(state).toMatchObject({ program: "kpng-json", nodeName: "n1", appliedRevision: 1, serviceCount: 2 });
  expect(await output("get", "backend", "--api", `unix://${socket}`)).toMatch(
    /^PROGRAM .*\nkpng-json +n1 +yes +1 +1 +2 /,
  );
  const rules = kpng("get", "rules", "--api", `unix://${socket}`);
  expect(await rules.ended).toBe(1);
  expect(rules.stderr()).toMatch(/^Error: .*: request rejected: .*this backend has no rules/);
});

describe("commands read files without a watcher", () => {
  test("their contents, the view of a node, and the path of a packet", async () => {
    expect(await output("file", "-i", input(), "get", "svc", "default/web", "--no-headers")).toMatch(
      /^default +web +LoadBalancer/,
    );
    const view = await output("file", "-i", input(), "get", "view", "n1", "--service", "default/web");
    expect(view).toMatch(/10\.1\.0\.2:8080 +web-2 +n2 +used, but not with policy Local: it is ready/);
    const explained = await output(
      "file",
      "-i",
      input(),
      "explain",
      "--node",
      "n1",
      "--from",
      "outside",
      "192.0.2.1:80",
    );
    expect(explained).toMatch(/^outside → 192\.0\.2\.1:80\/TCP: FORWARD\n/);
    expect(explained).toMatch(/externalTrafficPolicy is Local: only endpoints on this node\./);
  });

  test("everything about an endpoint, with its use by a node", async () => {
    const described = await output("file", "-i", input(), "describe", "endpoint", "web-2", "--node", "n1");
    expect(described).toMatch(/^Addresses: +10\.1\.0\.2\nPod: +web-2\nService: +default\/web\n/);
    expect(described).toMatch(/\nState: +ready\nNode: +n2\nZone: +zb\nHints for zones: +<none>\n/);
    expect(described).toMatch(/\nUse by node n1:\n.*REASON *\n.* 10\.1\.0\.2:8080 .* used, but not with policy Local/);
  });

  test.each([
    [["get", "services", "none"], 1, /^Error: Service "none" not found\n$/],
    [["get", "svc", "none", "-n", "default"], 1, /^Error: Service "none" not found in namespace "default"\n$/],
    [["describe", "endpoint", "none"], 1, /^Error: endpoint "none" not found\n$/],
    [["explain", "--node", "n1", "10.0.0.1"], 1, /expected address:port/],
    [["explain", "10.0.0.1:80"], 1, /--node is required/],
    [["explain", "--node", "n1", "default/web:nope"], 1, /no port "nope" in destination .*: its ports are http/],
    [["get", "nodes", "--not-applied", "4"], 1, /--not-applied 4 does not exist yet: the watcher is at revision 1/],
    [
      ["get", "nodes", "--state", "tired"],
      2,
      /unknown state "tired": expected current, received, behind, failing, absent or unknown/,
    ],
    [["get", "nodes", "-o", "xml"], 2, /expected table, wide, json, yaml or name/],
    [["get", "services", "default/web", "-n", "other"], 1, /"default\/web" and --namespace "other" name different/],
  ])("%j is rejected with the reason", async (args, code, message) => {
    const program = kpng("file", "-i", input(), ...args);
    expect(await program.ended).toBe(code);
    expect(program.stderr()).toMatch(message);
  });
});

describe("a missing or ambiguous name is rejected before a request is sent", () => {
  test.each([
    [["get", "view", ""], "value '' is invalid for argument 'node'. a node name must not be empty"],
    [["get", "nodes", ""], "value '' is invalid for argument 'name'. the value is empty; omit it to select all"],
    [["get", "services", "-n", "a/b"], "'-n, --namespace <name>' argument 'a/b' is invalid. expected the name of a"],
    [["get", "changes", "--service", "a/b/c"], "'--service <name>' argument 'a/b/c' is invalid. expected a Service as"],
    [["explain", "--node", "n1", "--from", "", "a/b"], "'--from <sender>' argument '' is invalid. the value is empty"],
  ])("%j", async (args, says) => {
    const program = kpng(...args);
    expect(await program.ended).toBe(2);
    expect(program.stderr()).toContain(says);
  });

  test("also from the environment", async () => {
    const program = start(kpngMain, ["get", "services"], { KPNG_NAMESPACE: "" });
    expect(await program.ended).toBe(2);
    expect(program.stderr()).toContain("value '' from env 'KPNG_NAMESPACE' is invalid. the value is empty");
  });
});
