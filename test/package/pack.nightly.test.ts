import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { inTurn, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { readCapture } from "@kpng/backend-kit/testing/ops.ts";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { programFile } from "../process/program-file.ts";

const repository = resolve(import.meta.dirname, "../..");

/** The first example of the guide. */
const backend = exampleWith("onState");

const folder = temporaryFolder(afterAll);
/** Reason why the packages could not be installed; undefined if they were. */
let obstacle: string | undefined;

beforeAll(() => {
  const dist = join(folder, "dist");
  execFileSync(process.execPath, ["deploy/images/bundle.ts", dist], { cwd: repository, stdio: "pipe" });
  const tarballs = [...packagesWithPrepack(), dist].map((path) => pack(path, folder));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const options = ["--no-audit", "--no-fund", "--fetch-retries=1", "--prefer-offline"];
  const { status, stderr } = spawnSync("npm", ["install", ...options, "@types/node@24", ...tarballs], {
    cwd: folder,
    encoding: "utf8",
  });
  if (status === 0) return;
  if (!/ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH/.test(stderr) || process.env.CI === "true") {
    throw new Error(`npm install failed:\n${stderr}`);
  }
  obstacle = "the npm registry is not reachable";
}, 240_000);

test("the packages contain no TypeScript sources and depend on none of our packages", (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const installed = join(folder, "node_modules");
  const libraries = readdirSync(join(installed, "@kpng")).map((name) => `@kpng/${name}`);
  for (const name of [...libraries, "kpng"]) {
    const files = readdirSync(join(installed, name), { recursive: true, encoding: "utf8" });
    expect(files.filter((file) => /(?<!\.d)\.ts$/.test(file) && !file.includes("node_modules"))).toEqual([]);
    const manifest = JSON.parse(readFileSync(join(installed, name, "package.json"), "utf8"));
    expect(Object.keys(manifest.dependencies).filter((dependency) => dependency.startsWith("@kpng/"))).toEqual([]);
  }
});

test("the installed kpng judges an installed client of the protocol", { timeout: 60_000 }, (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const args = ["protocol", "--only", "C1", "--", "kpng-json", "--api", "{api}", "--node-name", "{node}"];
  const { status, stdout, stderr } = npx("kpng", "conformance", ...args);
  expect(status, stdout + stderr).toBe(0);
  expect(stdout).toContain("1 passed, 0 failed");
});

// kpng-nft also needs the native module of koffi, which npm installs.
describePackets("the installed kpng", () => {
  test("judges an installed service proxy by packets", { timeout: 120_000 }, (context) => {
    context.skip(obstacle !== undefined, obstacle);
    const exceptions = join(repository, "services/backend-nft/packets.exceptions");
    const own = ["--only", "scenario/a-cluster-ip-with-two-ports", "--exceptions", exceptions];
    const proxy = ["kpng-nft", "--api", "{api}", "--node-name", "{node}", "--state-dir", "none", "{options}"];
    const { status, stdout, stderr } = npx("kpng", "conformance", "packets", ...own, "--", ...proxy);
    expect(status, stdout + stderr).toBe(0);
    expect(stdout).toContain("1 passed, 0 failed");
  });
});

test("on an older Node.js, the installed programs only name the version that they need", (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const older = '{ value: { ...process.versions, node: "20.19.0" } }';
  const preload = `data:text/javascript,Object.defineProperty(process, "versions", ${older})`;
  const program = join(folder, "node_modules/.bin/kpng-json");
  const { status, stderr } = spawnSync(process.execPath, ["--import", preload, program], { encoding: "utf8" });
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: expect.stringMatching(
      /^kpng-json needs Node.js 24 or newer, and this is Node.js 20.19.0: npm install .*\n$/,
    ),
  });
});

test("a backend of five lines runs on the installed package", async (context) => {
  context.skip(obstacle !== undefined, obstacle);
  const path = join(folder, "hello.mjs");
  writeFileSync(path, backend);
  await using watcher = await startFakeWatcher(inTurn(readCapture("local-n1")));
  const program = startProgram(pathToFileURL(path), ["--api", watcher.address, "--once"]);
  expect(await program.ended, program.stderr()).toBe(0);
  expect(program.stdout()).toBe("default/noeps 0\ndefault/web 3\n");
});

test("examples/typescript runs on the installed package", async (context) => {
  context.skip(obstacle !== undefined, obstacle);
  cpSync(join(repository, "examples/typescript/main.ts"), join(folder, "print.ts"));
  await using watcher = await startFakeWatcher(inTurn(readCapture("local-n1")));
  const program = startProgram(pathToFileURL(join(folder, "print.ts")), ["--api", watcher.address, "--once"]);
  expect(await program.ended, program.stderr()).toBe(0);
  expect(program.stdout()).toBe("default/noeps 10.0.0.2 -> \ndefault/web 10.0.0.1 -> 10.1.0.3,10.1.0.1,10.1.0.2\n");
});

const hasJq = spawnSync("jq", ["--version"]).status === 0;
test.skipIf(!hasJq)(`examples/shell runs with kpng-callout${hasJq ? "" : " (skipped: no jq)"}`, () => {
  const words = "file -i test/fixtures/kpng/input.yaml to-local to-callout --node-name n1 --once".split(" ");
  const args = [programFile("cli"), ...words, "--callout", "examples/shell/print.sh"];
  const { stdout } = spawnSync(process.execPath, args, { cwd: repository, encoding: "utf8" });
  expect(stdout).toBe(
    'default/noeps ["10.0.0.2"] -> []\ndefault/web ["10.0.0.1"] -> ["10.1.0.3","10.1.0.1","10.1.0.2"]\n',
  );
});

test("a backend with an option of its own passes its test with the kit's watcher", async (context) => {
  context.skip(obstacle !== undefined, obstacle);
  writeFileSync(join(folder, "names.js"), exampleWith("makeCallbacks"));
  writeFileSync(join(folder, "test.js"), exampleWith("startFakeWatcher"));
  const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env.PATH}` };
  const { status, stdout, stderr } = spawnSync(process.execPath, ["test.js"], { cwd: folder, env, encoding: "utf8" });
  expect(status, stderr).toBe(0);
  expect(stdout).toBe("default/web\n");
});

test("the service proxy of examples/nginx runs on the installed package", async (context) => {
  context.skip(obstacle !== undefined, obstacle);
  for (const name of ["main.ts", "nginx-backend.ts"]) {
    cpSync(join(repository, "examples/nginx", name), join(folder, name));
  }
  await using watcher = await startFakeWatcher(inTurn(readCapture("local-n1")));
  const options = ["--api", watcher.address, "--once", "--state-dir", "none", "--nginx-dir", folder];
  const program = startProgram(pathToFileURL(join(folder, "main.ts")), [...options, "--nginx-reload", "true"]);
  expect(await program.ended, program.stderr()).toBe(0);
  expect(readFileSync(join(folder, "services-v4.conf"), "utf8")).toContain("upstream default.web");
});

test.for(["nodenext", "bundler"])("the same backend compiles with module resolution %s", (resolution, context) => {
  context.skip(obstacle !== undefined, obstacle);
  writeFileSync(join(folder, "hello.ts"), backend);
  const module = resolution === "nodenext" ? "nodenext" : "esnext";
  const options = ["--strict", "--noEmit", "--target", "esnext", "--types", "node"];
  const tsc = join(repository, "node_modules/.bin/tsc");
  const { status, stdout } = spawnSync(
    tsc,
    [...options, "--module", module, "--moduleResolution", resolution, "hello.ts"],
    { cwd: folder, encoding: "utf8" },
  );
  expect(status, stdout).toBe(0);
});

/** The first example of the guide that contains a word. */
function exampleWith(word: string): string {
  const guide = readFileSync(join(repository, "docs/writing-a-backend.md"), "utf8");
  const examples = [...guide.matchAll(/```ts\n([^`]+)```/g)].map(([, example = ""]) => example);
  return examples.find((example) => example.includes(word)) ?? expect.fail(`no example contains ${word}`);
}

/** Runs an installed program as npx does: with all installed programs on the PATH. */
function npx(program: string, ...args: readonly string[]) {
  const path = [join(folder, "node_modules/.bin"), dirname(process.execPath), process.env.PATH].join(delimiter);
  return spawnSync(program, args, { cwd: folder, env: { ...process.env, PATH: path }, encoding: "utf8" });
}

function packagesWithPrepack(): string[] {
  const services = join(repository, "services");
  return readdirSync(services)
    .map((name) => join(services, name))
    .filter((path) => JSON.parse(readFileSync(join(path, "package.json"), "utf8")).scripts?.prepack !== undefined);
}

/** Returns the path of the tarball. */
function pack(path: string, destination: string): string {
  const output = execFileSync("npm", ["pack", "--json", "--pack-destination", destination], {
    cwd: path,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  // The output of the script prepack comes first.
  const [packed] = JSON.parse(output.slice(output.indexOf("[\n")));
  return join(destination, packed.filename);
}

/** A watcher inside another program. */
const embedded = `
import { createLog, fileSource, Health, makeDecodeOptions, proxyNamesOf, runTasks, serveTask, Store, Subscribers } from "@kpng/watcher";
import { Registry } from "prom-client";

const [input = "", socket = ""] = process.argv.slice(2);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const shared = { log: createLog("error"), health: new Health() };
const metrics = new Registry();
const store = new Store();
const source = fileSource({ inputs: [input], sink: store, decode: makeDecodeOptions(), metrics, ...shared });
const server = serveTask({
  listen: [\`unix://\${socket}\`],
  subscribers: new Subscribers(store, metrics),
  proxyNames: proxyNamesOf([]),
  onListening: () => process.stdout.write("listening\\n"),
  ...shared,
});
await runTasks([source, server], stop.signal);
`;

test("a watcher runs inside another program, and compiles there", async (context) => {
  context.skip(obstacle !== undefined, obstacle);
  writeFileSync(join(folder, "embedded.js"), embedded);
  writeFileSync(join(folder, "embedded.ts"), embedded);
  // The declarations of a dependency of the Kubernetes client need those of ws, which are not installed.
  const words = "embedded.ts --skipLibCheck --noEmit --strict --module nodenext --target es2024 --types node";
  const compiled = spawnSync(join(repository, "node_modules/.bin/tsc"), words.split(" "), {
    cwd: folder,
    encoding: "utf8",
  });
  expect(compiled.status, compiled.stdout).toBe(0);
  const socket = join(folder, "embedded.sock");
  const input = join(repository, "test/fixtures/kpng/input.yaml");
  const watcher = startProgram(pathToFileURL(join(folder, "embedded.js")), [input, socket]);
  await watcher.printed("listening\n");
  writeFileSync(join(folder, "hello.mjs"), backend);
  const hello = startProgram(pathToFileURL(join(folder, "hello.mjs")), ["--api", `unix://${socket}`, "--once"]);
  expect(await hello.ended, hello.stderr()).toBe(0);
  expect(hello.stdout()).toBe("default/noeps 0\ndefault/web 3\n");
  watcher.stop();
  expect(await watcher.ended, watcher.stderr()).toBe(0);
});
