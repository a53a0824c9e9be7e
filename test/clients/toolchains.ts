import { execFile } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { reasonOf } from "@kpng/process/log.ts";
import { testCache, withLock } from "../cluster/test-cache.ts";

const run = promisify(execFile);

/** What runs a client of one language. */
interface Toolchain {
  /** Runs the tests of the library; returns "passed", or what they have printed. */
  readonly test: (env: NodeJS.ProcessEnv) => Promise<string>;
  /** Command that runs the example. */
  readonly example: (folder: string) => Promise<readonly [string, ...string[]]>;
  /** Command that runs a client which prints each state, for `kpng conformance protocol`. */
  readonly conformance: (folder: string) => Promise<readonly [string, ...string[]]>;
  /** Environment of both commands. */
  readonly env?: Readonly<Record<string, string>>;
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
      example: (folder) => buildGo(resolve("examples/go"), ".", join(folder, "example-go")),
      conformance: (folder) => buildGo(cwd, "./internal/conformance", join(folder, "conformance-go")),
    },
  };
}

async function buildGo(cwd: string, from: string, to: string): Promise<readonly [string]> {
  await run("go", ["build", "-o", to, from], { cwd });
  return [to];
}

/** Versions that have packages for Python 3.9 to 3.14. */
const packages = ["grpcio==1.80.0", "protobuf==6.33.6", "pytest==8.4.2"];

async function findPython(): Promise<Found> {
  // Without =, by which the program env would take the path for an assignment.
  const folder = join(testCache("python"), packages.join(",").replaceAll("==", "-"));
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
      conformance: () => Promise.resolve([python, resolve("clients/python/tests/conformance.py")]),
      env,
    },
  };
}

function runTests([command = "", ...args]: readonly string[], cwd: string, env: NodeJS.ProcessEnv): Promise<string> {
  const failed = (error: Error & { readonly stdout?: string }): string => `${error.stdout ?? ""}${error.message}`;
  return run(command, args, { cwd, env, maxBuffer: Infinity }).then(() => "passed", failed);
}

/** The languages that have a client library, by the name of its folder. */
export const languages = [
  { name: "Go", folder: "go", find: findGo },
  { name: "Python", folder: "python", find: findPython },
] as const;
