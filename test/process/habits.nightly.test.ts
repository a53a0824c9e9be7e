import { spawn } from "node:child_process";
import { cpSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type KpngResult, runKpng } from "../docs/run-kpng.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// What people type who know kubectl and pipes. Most commands run in this process: starting one takes seconds on a busy
// machine.
vi.setConfig({ testTimeout: 120_000 });

const { at, start } = usePrograms();
const api = (): string => `unix://${at("api.sock")}`;
const kpng = (args: readonly string[]): Program => start(kpngMain, args);

beforeEach(() => {
  cpSync(resolve("test/fixtures/kpng/input.yaml"), at("state.yaml"));
  vi.stubEnv("KPNG_API", api());
});
afterEach(() => {
  vi.unstubAllEnvs();
});

async function watcher(...more: string[]): Promise<Program> {
  const program = kpng(["file", "-i", at("state.yaml"), ...more, "to-api", "--listen", api()]);
  await program.said('"msg":"listening"');
  await program.said('"msg":"input read"');
  return program;
}

/** Runs a command that succeeds. */
async function output(...args: string[]): Promise<KpngResult> {
  const result = await runKpng(args);
  expect(result.code, result.said).toBe(0);
  return result;
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
    const { code, said } = await runKpng(["get", "svc", "web", "-l", "app=web"]);
    expect([code, said]).toEqual([1, "Error: give names, or --selector and --field-selector, not both\n"]);
  });

  test("may have kubectl's names, and values may follow an equals sign", async () => {
    const file = ["file", "-i", at("state.yaml")];
    const { out } = await output(
      ...file,
      "get",
      "svc",
      "-n=default",
      "-o=custom-columns=N:.metadata.name,IP:.spec.clusterIP",
    );
    expect(out).toBe("N       IP\nnoeps   10.0.0.2\nweb     10.0.0.1\n");
    const empty = await output(...file, "get", "svc", "web", "-o", "jsonpath={.spec.clusterIP}");
    expect(empty.out).toBe("");
    expect(empty.said).toMatch(/^Hint: the template selects nothing; its root is \{"items"/);
    const { said } = await runKpng([...file, "get", "svc", "web,noeps"]);
    expect(said).toBe('Error: Service "web,noeps" not found\nHint: names are separated by spaces: web noeps\n');
    expect((await output(...file, "analyze", "-n", "other")).out).toBe("No findings.\n");
  });

  test("of Services that have none lead to a hint", async () => {
    const { out, said } = await output("file", "-i", at("state.yaml"), "get", "svc", "-l", "app=web");
    expect(out).toBe("");
    expect(said).toMatch(/^no Services found\nHint: .*--with-service-labels/);
  });
});

test.each([
  ["get svc -A -o name", "service/default/noeps\nservice/default/web\n"],
  ["get svc/web -o name", "service/default/web\n"],
  ["get svc web noeps -o name", "service/default/web\nservice/default/noeps\n"],
  ["get -n default svc -o name", "service/default/noeps\nservice/default/web\n"],
  ["get svc --sort-by .ports[0].port -o jsonpath={.items[*].name}", "web noeps"],
  ["get svc -o custom-columns=NAME:.name --no-headers", "noeps\nweb\n"],
  ["describe service web", /^Name: +web\nNamespace: +default\n/],
])("kpng file -i state.yaml %s", async (words, expected) => {
  const { out } = await output("file", "-i", at("state.yaml"), ...words.split(" "));
  if (typeof expected === "string") expect(out).toBe(expected);
  else expect(out).toMatch(expected);
});

test("the help of a command with long options is as wide as the terminal, or 100 columns in a pipe", async () => {
  const help = kpng(["local", "to-iptables", "--help"]);
  expect(await help.ended).toBe(0);
  const options = /^Options:\n([\s\S]*?)\n\n/m.exec(help.stdout())?.[1]?.split("\n") ?? [];
  expect(options.length).toBeGreaterThan(50);
  expect(options.filter((line) => line.length > 100)).toEqual([]);
});

test("a habit that kpng does not have is refused with the reason and what to do instead", async () => {
  const { out, said, code } = await runKpng(["get", "-n", "shop", "pods"]);
  expect([code, out]).toEqual([2, ""]);
  expect(said).toBe(
    'Error: kpng has no "get pods": a watcher knows pods only as endpoints of Services\n' +
      "Hint: kpng get endpoints, kpng describe endpoint POD\n",
  );
  const program = kpng(["delete", "service", "web"]);
  expect(await program.ended).toBe(2);
  expect(program.stdout()).toBe("");
  expect(program.stderr()).toMatch(/^Error: kpng has no "delete": .*\nHint: use kubectl; .*\n$/);
});

test("kubectl's word for EndpointSlices lists endpoints", async () => {
  const get = ["file", "-i", at("state.yaml"), "get"];
  expect((await output(...get, "endpointslices", "--no-headers")).out.split("\n")).toHaveLength(5);
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
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  const message = "--tls-ca /nonexistent.pem cannot be read";
  const backend = start("services/backend-json/src/main.ts", ["--api", api(), "--once", ...args]);
  expect((await runKpng(["get", "nodes", ...args])).said).toContain(message);
  await expect(runKpng(["local", ...args, "to-json"])).rejects.toThrow(message);
  expect(await backend.ended).toBe(1);
  expect(backend.stderr()).toContain(message);
});

test("to-file -o - prints the state once, and --once writes a file once", async () => {
  const toFile = ["file", "-i", at("state.yaml"), "to-file"];
  const programs = [kpng([...toFile, "-o", "-"]), kpng([...toFile, "-o", at("out.yaml"), "--once"])];
  for (const program of programs) expect(await program.ended, program.stderr()).toBe(0);
  const expected = readFileSync(resolve("test/fixtures/kpng/to-file.yaml"), "utf8");
  expect([programs[0]?.stdout(), readFileSync(at("out.yaml"), "utf8")]).toEqual([expected, expected]);
});

test("a Service with a port is one for kpng explain, and get says so", async () => {
  const { code, said } = await runKpng(["get", "svc", "shop/web:https"]);
  expect(code).toBe(2);
  expect(said).toContain("kpng explain --node NODE shop/web:https; here write shop/web");
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
    expect(said).toMatch(/^warning: invalid part skipped: .*state\.yaml:\d+:.*10\.0\.0/);
  });

  test("is served only with --skip-bad, because part of a cluster is rarely wanted", async () => {
    const refused = kpng(["file", "-i", at("state.yaml"), "to-api", "--listen", api()]);
    expect(await refused.ended).toBe(1);
    expect(refused.stderr()).toContain("[BAD_INPUT]");
    const program = await watcher("--skip-bad");
    await program.said('"msg":"invalid part skipped"');
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
  ["file", "-i", "state.yaml", "to-local", "to-json", "--node-name", "n1"],
  ["get", "endpoints", "--watch"],
])("kpng %s %s … | head -1 ends at its next line", async (...args) => {
  await watcher();
  const run = `"$0" "$@" | head -1`;
  const words = args.map((word) => (word === "state.yaml" ? at(word) : word));
  const pipe = spawn("bash", ["-c", run, process.execPath, kpngMain, ...words], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  pipe.stdout.on("data", (data) => {
    text += data;
  });
  let hasEnded = false;
  const ended = new Promise((resolve) => pipe.once("close", resolve)).then(() => {
    hasEnded = true;
  });
  await expect.poll(() => text, { timeout: 60_000 }).toMatch(/\n$/);
  // Again and again, because head may end after the first change.
  let count = 0;
  const changeUntilEnd = (): boolean => {
    count = (count + 1) % 10;
    const state = readFileSync(at("state.yaml"), "utf8").replace(/10\.1\.0\.2\d*/, `10.1.0.2${count}`);
    writeFileSync(at("next.yaml"), state);
    renameSync(at("next.yaml"), at("state.yaml"));
    return hasEnded;
  };
  await expect.poll(changeUntilEnd, { timeout: 60_000, interval: 500 }).toBe(true);
  await ended;
  expect(text.split("\n")).toHaveLength(2);
});

test("kpng diff fails in plain text, with a hint and exit code 2", async () => {
  const program = kpng(["diff", "iptables", "--node-name", "n1", "--watcher-timeout", "1s"]);
  expect(await program.ended).toBe(2);
  expect(program.stderr()).toMatch(/^Error: no view of node "n1" .*\nHint: there is no such socket/);
});
