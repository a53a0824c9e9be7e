import { type ChildProcess, execFile, spawn } from "node:child_process";
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { afterEach, describe, expect, test, vi } from "vitest";
import { parse } from "yaml";
import { kpngMain, usePrograms } from "../process/programs.ts";
import { languages } from "./toolchains.ts";

// The client libraries in Go and Python: their own tests, and their examples with a watcher of ours.

// The first run downloads modules and packages, and compiles gRPC for Go.
vi.setConfig({ testTimeout: 600_000 });

const run = promisify(execFile);

const programs = usePrograms();
const children: ChildProcess[] = [];

afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
});

/** Starts a program. Returns what it has printed so far. */
function start([command, ...args]: readonly [string, ...string[]], env: NodeJS.ProcessEnv) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      printed[name] += text;
    });
  }
  const ended = new Promise<number | null>((done) => child.once("close", done));
  return { child, printed, ended };
}

/** Starts a watcher that reads a file, at a port of its choice or a given one. Returns its address. */
async function serve(file: string, port = "0"): Promise<string> {
  const watcher = programs.start(kpngMain, ["file", "-i", file, "to-api", "--listen", `tcp://127.0.0.1:${port}`]);
  await watcher.said('"msg":"input read"');
  await watcher.said('"msg":"listening"');
  return /"addresses":\["([^"]+)"/.exec(watcher.stderr())?.[1] ?? "";
}

/** Returns the programs and the applied revision of node n1, as `kpng get nodes` shows them. */
async function node(address: string): Promise<unknown> {
  const { stdout } = await run(process.execPath, [kpngMain, "get", "nodes", "--api", address, "-o", "json"]);
  const [{ programs, appliedRevision }] = JSON.parse(stdout).items;
  return { programs, appliedRevision };
}

describe.each(languages)("the client in $name", ({ folder, find }) => {
  test("keeps the rules of the protocol, and its messages are those of the proto files", async ({ skip }) => {
    const found = await find();
    if (found.kind === "missing") return skip(found.reason);
    const descriptors = programs.at("localv1.binpb");
    const paths = ["--path", "proto/localv1", "--path", "proto/kpng/plan"];
    await run("buf", ["build", ...paths, "--as-file-descriptor-set", "--exclude-source-info", "-o", descriptors]);
    expect(await found.toolchain.test({ ...process.env, KPNG_DESCRIPTORS: descriptors })).toBe("passed");
  });

  test("shows what a watcher serves, its changes, and what a restarted watcher serves", async ({ skip }) => {
    const found = await find();
    if (found.kind === "missing") return skip(found.reason);
    const { toolchain } = found;
    const input = programs.at("input.yaml");
    copyFileSync("test/fixtures/kpng/input.yaml", input);
    const address = await serve(input);
    const env = { ...toolchain.env, KPNG_API: address, KPNG_NODE_NAME: "n1" };
    const { child, printed, ended } = start(await toolchain.example(programs.at(".")), env);
    const lines = (): string => printed.stdout.replaceAll(/['",]/g, "");
    await expect.poll(lines, { timeout: 60_000 }).toMatch(/default\/web \[10\.0\.0\.1\] -> \[10\.1\.0\.3 10\.1\.0\.1/);
    // The watcher hears that the view is applied.
    const applied = { programs: [`${folder}-client`], appliedRevision: 1 };
    await expect.poll(() => node(address), { timeout: 60_000 }).toEqual(applied);

    writeFileSync(input, readFileSync(input, "utf8").replaceAll("10.1.0.2", "10.1.0.22"));
    await expect.poll(lines, { timeout: 60_000 }).toContain("10.1.0.22");

    const [watcher] = programs.started;
    watcher?.stop();
    await watcher?.ended;
    writeFileSync(input, readFileSync(input, "utf8").replaceAll("10.1.0.22", "10.1.0.23"));
    await serve(input, address.split(":")[1]);
    await expect.poll(lines, { timeout: 60_000 }).toContain("10.1.0.23");
    // Only the Service that changed was shown again.
    expect(lines().match(/default\/noeps/g)).toHaveLength(1);
    child.kill("SIGTERM");
    await ended;
  });

  test("is deployed with the variables that its example reads", () => {
    const manifest = parse(readFileSync(`examples/${folder}/daemonset.yaml`, "utf8"));
    const { name, image, env } = manifest.spec.template.spec.containers[0];
    expect({ name, image }).toEqual({ name: "backend", image: `kpng-${folder}-example` });
    const source = readFileSync(`examples/${folder}/${folder === "go" ? "main.go" : "backend.py"}`, "utf8");
    const read = [...source.matchAll(/"(KPNG_\w+)"/g)].map(([, variable]) => variable);
    expect(env.map((one: { readonly name: string }) => one.name).toSorted()).toEqual(read.toSorted());
  });
});
