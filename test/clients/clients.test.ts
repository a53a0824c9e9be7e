import { type ChildProcess, execFile, spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { afterEach, describe, expect, test, vi } from "vitest";
import { parse } from "yaml";
import { testCache, withLock } from "../cluster/test-cache.ts";
import { kpngMain, usePrograms } from "../process/programs.ts";

// The client libraries in Go and Python: their own tests, and their examples with a watcher of ours.

// The first run downloads modules and packages, and compiles gRPC for Go.
vi.setConfig({ testTimeout: 600_000 });

const run = promisify(execFile);

/** What runs a client of one language. */
interface Toolchain {
  /** Runs the tests of the library. */
  readonly test: (env: NodeJS.ProcessEnv) => Promise<{ readonly exitCode: number | null; readonly output: string }>;
  /** Command that runs the example. */
  readonly example: (folder: string) => Promise<readonly [string, ...string[]]>;
  readonly env?: NodeJS.ProcessEnv;
}

type Found = { readonly kind: "found"; readonly toolchain: Toolchain } | { readonly kind: "missing"; reason: string };

async function findGo(): Promise<Found> {
  const cwd = resolve("clients/go");
  try {
    for (const folder of [cwd, resolve("examples/go")])
      await run("go", ["build", "-o", "/dev/null", "./..."], { cwd: folder });
  } catch (error) {
    // Anything else is a fault of the sources.
    const reason = reasonOf(error);
    if (!/ENOENT|dial tcp|proxy|toolchain|requires go/.test(reason)) throw error;
    return { kind: "missing", reason: `no Go with the modules of clients/go: ${reason}` };
  }
  return {
    kind: "found",
    toolchain: {
      test: (env) => runTests(["go", "test", "-count=1", "./..."], cwd, env),
      example: async (folder) => {
        const program = join(folder, "example-go");
        await run("go", ["build", "-o", program, "."], { cwd: resolve("examples/go") });
        return [program];
      },
    },
  };
}

/** Versions that have packages for Python 3.9 to 3.14. */
const packages = ["grpcio==1.80.0", "protobuf==6.33.6", "pytest==8.4.2"];

async function findPython(): Promise<Found> {
  const folder = join(testCache("python"), packages.join(","));
  const python = join(folder, "bin/python");
  try {
    mkdirSync(testCache("python"), { recursive: true });
    await withLock(join(testCache("python"), "install.lock"), async () => {
      const done = join(folder, "installed");
      if (existsSync(done)) return;
      await run("python3", ["-m", "venv", "--clear", folder]);
      await run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...packages]);
      writeFileSync(done, "");
    });
  } catch (error) {
    return { kind: "missing", reason: `no Python with ${packages.join(", ")}: ${reasonOf(error)}` };
  }
  const env = { PYTHONPATH: resolve("clients/python"), PYTHONDONTWRITEBYTECODE: "1" };
  return {
    kind: "found",
    toolchain: {
      test: (more) => runTests([python, "-m", "pytest", "-q"], resolve("clients/python"), { ...more, ...env }),
      example: () => Promise.resolve([python, resolve("examples/python/backend.py")]),
      env,
    },
  };
}

async function runTests([command = "", ...args]: readonly string[], cwd: string, env: NodeJS.ProcessEnv) {
  const child = spawn(command, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const exitCode = await new Promise<number | null>((done) => child.once("close", done));
  return { exitCode, output };
}

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

const languages = [
  { name: "Go", folder: "go", find: findGo },
  { name: "Python", folder: "python", find: findPython },
];

describe.each(languages)("the client in $name", ({ folder, find }) => {
  test("keeps the rules of the protocol, and its messages are those of the proto files", async ({ skip }) => {
    const found = await find();
    if (found.kind === "missing") return skip(found.reason);
    const descriptors = programs.at("localv1.binpb");
    await run("buf", [
      "build",
      "--path",
      "proto/localv1",
      "--as-file-descriptor-set",
      "--exclude-source-info",
      "-o",
      descriptors,
    ]);
    const { exitCode, output } = await found.toolchain.test({ ...process.env, KPNG_DESCRIPTORS: descriptors });
    expect(exitCode, output).toBe(0);
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
