import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// What people type who know kubectl and pipes. Each start is a process, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 });

const { at, start } = usePrograms();
beforeEach(() => cpSync(resolve("test/fixtures/kpng/input.yaml"), at("state.yaml")));

const api = (): string => `unix://${at("api.sock")}`;
const kpng = (args: readonly string[], env: Readonly<Record<string, string>> = {}): Program =>
  start(kpngMain, args, { KPNG_API: api(), ...env });

async function watcher(...more: string[]): Promise<Program> {
  const program = kpng(["file", "-i", at("state.yaml"), ...more, "to-api", "--listen", api()]);
  await program.said('"msg":"listening"');
  return program;
}

/** Returns what a command that succeeds prints, and what it says on standard error. */
async function output(...args: string[]): Promise<{ readonly out: string; readonly said: string }> {
  const program = kpng(args);
  expect(await program.ended, program.stderr()).toBe(0);
  return { out: program.stdout(), said: program.stderr() };
}

describe("labels and fields", () => {
  test("select rows of a watcher that keeps the labels, and a hint says if it keeps none", async () => {
    const labelled = readFileSync(at("state.yaml"), "utf8").replace(
      "    name: web\n",
      "    name: web\n    labels: {app: web}\n",
    );
    writeFileSync(at("state.yaml"), labelled);
    await watcher();
    expect((await output("get", "svc", "-A", "-l", "app=web", "-o", "name")).out).toBe("service/default/web\n");
    expect((await output("get", "svc", "-l", "app!=web", "-o", "name")).out).toBe("service/default/noeps\n");
    const [web] = JSON.parse((await output("get", "svc", "-l", "app in (web,db)", "-o", "json")).out);
    expect(web.labels).toEqual({ app: "web" });
    expect((await output("get", "nodes", "--field-selector", "state=absent,zone=za", "-o", "name")).out).toBe(
      "node/n1\n",
    );
    expect((await output("get", "ep", "--field-selector", "node=n2", "--no-headers")).out.split("\n")).toHaveLength(3);
    const names = kpng(["get", "svc", "web", "-l", "app=web"]);
    expect(await names.ended).toBe(1);
    expect(names.stderr()).toBe("Error: give names, or --selector and --field-selector, not both\n");
  });

  test("of Services that have none lead to a hint", async () => {
    const { out, said } = await output("file", "-i", at("state.yaml"), "get", "svc", "-l", "app=web");
    expect(out).toBe("");
    expect(said).toMatch(/^no Services found\nHint: .*--with-service-labels/);
  });
});

test("kpng version prints the version of the watcher, or why it has none", async () => {
  const alone = await output("version");
  expect(alone.out).toMatch(/^kpng \d/);
  expect(alone.said).toMatch(/^warning: no version of a watcher: .*ENOENT/);
  expect((await output("version", "--client")).said).toBe("");
  await watcher();
  const both = JSON.parse((await output("version", "-o", "json")).out);
  expect(both.watcherVersion).toBe(both.version);
});

test("colours are off in a pipe, on with --color always, and only repeat what the text says", async () => {
  const get = ["file", "-i", at("state.yaml"), "get", "nodes"];
  const plain = (await output(...get)).out;
  expect(plain).not.toContain("\u001b");
  const coloured = (await output(...get, "--color", "always")).out;
  expect(coloured).toContain("\u001b[90mabsent\u001b[39m");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are the subject
  expect(coloured.replaceAll(/\u001b\[\d+m/g, "")).toBe(plain);
});

test.each([
  ["--tls-ca", {}],
  ["--api-client-tls-ca", {}],
  [undefined, { KPNG_TLS_CA: "/nonexistent.pem" }],
  [undefined, { KPNG_API_CLIENT_TLS_CA: "/nonexistent.pem" }],
])("the CA of a watcher is named by %s or by the environment %j, in every program", async (flag, env) => {
  const args = flag === undefined ? [] : [flag, "/nonexistent.pem"];
  const backend = start("services/backend-json/src/main.ts", ["--api", api(), "--once", ...args], env);
  for (const program of [kpng(["get", "nodes", ...args], env), kpng(["local", ...args, "to-json"], env), backend]) {
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toContain("--tls-ca /nonexistent.pem cannot be read");
  }
});

test("to-file -o - prints the state once, and --once writes a file once", async () => {
  const { out } = await output("file", "-i", at("state.yaml"), "to-file", "-o", "-");
  expect(out).toBe(readFileSync(resolve("test/fixtures/kpng/to-file.yaml"), "utf8"));
  await output("file", "-i", at("state.yaml"), "to-file", "-o", at("out.yaml"), "--once");
  expect(readFileSync(at("out.yaml"), "utf8")).toBe(out);
});

test("a Service with a port is one for kpng explain, and get says so", async () => {
  const get = kpng(["get", "svc", "shop/web:https"]);
  expect(await get.ended).toBe(2);
  expect(get.stderr()).toContain("kpng explain --node NODE shop/web:https; here write shop/web");
});

describe("an input of which one Service is bad", () => {
  beforeEach(() => {
    const text = readFileSync(at("state.yaml"), "utf8");
    writeFileSync(
      at("state.yaml"),
      `${text.trimEnd()}\n- service: {name: broken, ips: {clusterips: {v4: [10.0.0]}}}\n`,
    );
  });

  test("still shows the others, with a warning", async () => {
    const { out, said } = await output("file", "-i", at("state.yaml"), "get", "svc", "-o", "name");
    expect(out).toBe("service/default/noeps\nservice/default/web\n");
    expect(said).toMatch(/^warning: invalid object skipped: .*state\.yaml:\d+:.*10\.0\.0/);
  });

  test("is served only with --skip-bad, because part of a cluster is rarely wanted", async () => {
    const refused = kpng(["file", "-i", at("state.yaml"), "to-api", "--listen", api()]);
    expect(await refused.ended).toBe(1);
    expect(refused.stderr()).toContain("[BAD_INPUT]");
    const program = await watcher("--skip-bad");
    await program.said('"msg":"invalid object skipped"');
    expect((await output("get", "svc", "-o", "name")).out).toBe("service/default/noeps\nservice/default/web\n");
  });
});

test("an input without any object is a warning", async () => {
  writeFileSync(at("state.yaml"), "services: []\n");
  const { said } = await output("file", "-i", at("state.yaml"), "get", "svc");
  expect(said).toMatch(
    /^warning: the input has no Service, EndpointSlice or Node: .*state\.yaml\nno Services found\n$/,
  );
  await (await watcher()).said('"msg":"the input has no Service, EndpointSlice or Node"');
});

test("replay get nodes shows what the nodes had applied when the recording ended", async () => {
  await watcher();
  const backend = start("services/backend-json/src/main.ts", ["--api", api(), "--node-name", "n1"]);
  await expect.poll(() => backend.stdout().split("\n").length, { timeout: 60_000 }).toBe(3);
  await expect.poll(async () => (await output("get", "nodes", "n1")).out, { timeout: 60_000 }).toContain("current");
  await output("record", "--for", "0", "-o", at("r.jsonl.gz"));
  const replay = (...args: string[]) => output("replay", "-i", at("r.jsonl.gz"), "get", ...args);
  expect((await replay("nodes", "--no-headers")).out).toMatch(/^n1 +current +1 .*kpng-json.*\nn2 +absent /);
  expect((await replay("nodes", "--state", "current", "-o", "name")).out).toBe("node/n1\n");
  expect((await replay("sub", "--no-headers")).out).toMatch(/ n1 +node +kpng-json /);
});

test.each([
  "kpng local --api $API to-json --node-name n1",
  "kpng file -i $STATE to-local to-json --node-name n1",
  "kpng get nodes --api $API --watch",
])("%s | head -1 ends", async (command) => {
  await watcher();
  const text = command
    .replace("kpng", `"${process.execPath}" ${kpngMain}`)
    .replace("$API", api())
    .replace("$STATE", at("state.yaml"));
  const stdio = ["ignore", "pipe", "ignore"] as const;
  const first = execFileSync("bash", ["-c", `${text} | head -1`], {
    encoding: "utf8",
    timeout: 60_000,
    stdio: [...stdio],
  });
  expect(first.split("\n")).toHaveLength(2);
});

test("kpng diff fails in plain text, with a hint and exit code 2", async () => {
  const program = kpng(["diff", "iptables", "--node-name", "n1", "--watcher-timeout", "1s"]);
  expect(await program.ended).toBe(2);
  expect(program.stderr()).toMatch(/^Error: no view of node "n1" .*\nHint: there is no such socket/);
});
