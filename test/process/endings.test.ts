import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, cpSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { resolve } from "node:path";
import { text } from "node:stream/consumers";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { describe, expect, test } from "vitest";
import { listen } from "../cluster/ports.ts";
import { programFile } from "./program-file.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// The end of the programs: on a signal, on a failure, and after invalid arguments.
const { at, start } = usePrograms();

const kpng = (args: readonly string[], env: Record<string, string> = {}): Program => start(kpngMain, args, env);

describe("SIGTERM while the input has not ended", () => {
  test.each([
    { name: "standard input", input: () => "-" },
    {
      name: "a pipe without a writer",
      input: () => {
        execFileSync("mkfifo", [at("pipe")]);
        return at("pipe");
      },
    },
  ])("$name: a watcher exits", async ({ input }) => {
    const program = kpng(["file", "-i", input(), "to-api", "--listen", `unix://${at("api.sock")}`]);
    await program.said('"msg":"listening"');
    program.stop();
    expect(await program.ended).toBe(0);
  });
});

describe("with --once, a backend waits for a watcher only as long as its limit", () => {
  const once = ["local", "to-json", "--node-name", "n1", "--once", "--watcher-timeout"];

  test("the error for a missing watcher has its address, the limit and the reason", async () => {
    const address = `unix://${at("none.sock")}`;
    // Long enough for a first attempt on a busy machine, whose failure is the reason.
    const program = kpng([...once, "2s", "--api", address]);
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toContain(
      `[NO_VIEW] no view of node \\"n1\\" from ${address} within 2000 ms (--watcher-timeout): [STREAM_LOST]`,
    );
  });

  test("the limit also holds for a watcher that accepts the connection and never answers", async () => {
    await using server = createServer((client) => client.on("error", () => undefined).resume()).listen(
      at("silent.sock"),
    );
    await new Promise((resolve) => server.once("listening", resolve));
    const program = kpng([...once, "300ms", "--api", `unix://${at("silent.sock")}`]);
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toContain("silent.sock within 300 ms (--watcher-timeout): it has not sent one yet");
  });

  test("the error for a watcher in the same process says what it waits for", async () => {
    const program = kpng(["kube", "--server", "http://127.0.0.1:1", "to-local", ...once.slice(1), "2s"]);
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toMatch(/NO_VIEW.* from the watcher of this process .*: source\/kube\/services: /);
  });

  test("a backend without --once, or with the limit 0, waits without limit", async () => {
    const api = ["--api", `unix://${at("none.sock")}`, "--error-delay", "1ms"];
    const [staying, patient] = [
      kpng(["local", "to-json", "--node-name", "n1", "--watcher-timeout", "1ms", ...api]),
      kpng([...once, "0", ...api]),
    ];
    for (const program of [staying, patient]) {
      await expect.poll(() => program.stderr().split("stream lost").length).toBeGreaterThan(4);
      program.stop();
      expect(await program.ended).toBe(0);
      expect(program.stderr()).not.toContain("NO_VIEW");
    }
  });
});

describe("a question to a cluster ends with the first failure of its server, or after its limit", () => {
  const away = ["kube", "--server", "http://127.0.0.1:1"];
  const view = ["get", "view", "n1"];

  test.each([
    { name: "an API server", source: () => away, says: "source/kube/services: " },
    { name: "a watcher", source: () => ["api", "--api", `unix://${at("none.sock")}`], says: "source/api: " },
  ])("the error for $name that is down has its name", async ({ source, says }) => {
    for (const program of [view, ["explain", "--node", "n1", "default/web"]].map((words) =>
      kpng([...source(), ...words]),
    )) {
      expect(await program.ended).toBe(1);
      expect(program.stdout()).toBe("");
      expect(program.stderr()).toContain(`Error: no complete cluster state: ${says}`);
      expect(program.stderr(), "no log lines").toMatch(/^Error: [^\n]*\nHint: [^\n]*\n$/);
    }
  });

  test("the error for a watcher that accepts the connection and never answers has the limit", async () => {
    await using server = createServer((client) => client.on("error", () => undefined).resume()).listen(at("mute.sock"));
    await new Promise((resolve) => server.once("listening", resolve));
    const program = kpng(["api", "--api", `unix://${at("mute.sock")}`, ...view, "--watcher-timeout", "300ms"]);
    expect(await program.ended).toBe(1);
    expect(program.stderr()).toContain("no complete cluster state within 300 ms (--watcher-timeout): source/api: ");
  });

  test("a watcher waits without limit", async () => {
    const stays = [...away, "to-api", "--listen", `unix://${at("api.sock")}`];
    const program = kpng(stays, { KPNG_WATCHER_TIMEOUT: "1ms" });
    await program.said('"list failed"');
    program.stop();
    expect(await program.ended).toBe(0);
    expect(program.stderr()).not.toContain("no complete cluster state");
  });

  test("the limit does not apply to files", async () => {
    const run = `cat "$2" | "$0" "$1" file -i - get services default/web`;
    const args = ["-c", run, process.execPath, resolve(kpngMain), resolve("test/fixtures/kpng/input.yaml")];
    const { status, stdout } = spawnSync("bash", args, { env: { ...process.env, KPNG_WATCHER_TIMEOUT: "1ms" } });
    expect([status, String(stdout)]).toEqual([0, expect.stringContaining("LoadBalancer")]);
  });
});

test.each([
  { name: "a question to", args: ["get", "services"], code: 0, says: "" },
  { name: "a recording of", args: ["record"], code: 1, says: "nothing is recorded\n" },
])("SIGTERM ends $name a server that accepts the connection and says nothing", async ({ args, code, says }) => {
  const server = createServer();
  const port = await listen(server);
  const asked = once(server, "connection");
  const program = start(kpngMain, [...args, "--api", `127.0.0.1:${port}`]);
  const [socket] = (await asked) as [Socket];
  await once(socket, "data");
  program.stop();
  expect(await program.ended, program.stderr()).toBe(code);
  expect(program.stderr()).toContain(says);
  socket.destroy();
  server.close();
});

describe("a command whose exit status 1 means a difference exits with 2 on a failure", () => {
  const iptablesMain = "services/backend-iptables/src/main.ts";
  const away = () => ["--node-name", "n1", "--watcher-timeout", "300ms", "--api", `unix://${at("none.sock")}`];

  // On a machine without iptables, that is the first error.
  test.each([
    {
      name: "--diff of kpng local",
      ask: () => kpng(["local", "to-iptables", "--diff", ...away()]),
      says: /NO_VIEW|IPTABLES_MISSING/,
    },
    { name: "an unknown option", ask: () => start(iptablesMain, ["--diff", "--no-such"]), says: /unknown option/ },
    {
      name: "options that exclude each other",
      ask: () => start(iptablesMain, ["--diff", "--cleanup"]),
      says: /BAD_OPTION.*only one of these can be given/,
    },
  ])("$name", async ({ ask, says }) => {
    const program = ask();
    expect(await program.ended, program.stderr()).toBe(2);
    expect(program.stdout()).toBe("");
    expect(program.stderr()).toMatch(says);
  });

  test("other commands fail with 1", async () => {
    expect(await start(iptablesMain, ["--dry-run", "--cleanup"]).ended).toBe(1);
  });
});

describe("an error of standard output", () => {
  const state = resolve("test/fixtures/kpng/input.yaml");
  const main = programFile("cli");

  test.each([
    { name: "a list", args: ["file", "-i", state, "get", "services"] },
    { name: "a backend's text", args: ["file", "-i", state, "to-local", "to-json", "--node-name", "n1", "--once"] },
  ])("$name: the error is reported, and the exit status is not 0", ({ args }) => {
    const full = openSync("/dev/full", "w");
    try {
      const { status, stderr } = spawnSync(process.execPath, [main, ...args], { stdio: ["ignore", full, "pipe"] });
      expect([status, String(stderr)]).toEqual([1, expect.stringContaining("[OUTPUT_FAILED] standard output cannot")]);
    } finally {
      closeSync(full);
    }
  });

  test("a log that cannot be written does not stop the program", () => {
    const args = ["file", "-i", state, "to-local", "to-json", "--node-name", "n1", "--once"];
    const full = openSync("/dev/full", "w");
    try {
      const { status, stdout } = spawnSync(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", full] });
      expect([status, String(stdout)]).toEqual([0, expect.stringContaining("web")]);
    } finally {
      closeSync(full);
    }
  });

  test("a reader that closes the pipe is a normal end", () => {
    const run = `set -o pipefail; "$0" "$1" file -i "$2" get endpoints -o yaml | true`;
    const { status, stderr } = spawnSync("bash", ["-c", run, process.execPath, main, state]);
    expect([status, String(stderr)]).toEqual([0, ""]);
  });

  test("a reader that closes the pipe ends kpng connect, although its input stays open", async () => {
    await using server = createServer((client) => client.on("error", () => undefined).write("first"));
    const path = at("inspect.sock");
    await once(server.listen(path), "listening");
    const accepted = once(server, "connection");
    const connected = spawn(process.execPath, [main, "connect"], {
      env: { ...process.env, KPNG_INSPECT_SOCKET: path },
    });
    const ended = once(connected, "close");
    const [client] = (await accepted) as [Socket];
    await once(connected.stdout, "data");
    connected.stdout.destroy();
    client.write("second");
    expect(await ended).toEqual([0, null]);
  });

  test("a reader that closes the pipe ends a backend as a signal does: its socket is removed", async () => {
    const [input, socket] = [at("state.yaml"), at("backend.sock")];
    cpSync(state, input);
    const args = ["file", "-i", input, "to-local", "to-json", "--node-name", "n1", "--inspect-socket", socket];
    const backend = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "pipe"] });
    const ended = once(backend, "close");
    const stderr = text(backend.stderr);
    await once(backend.stdout, "data");
    backend.stdout.destroy();
    writeFileSync(input, readFileSync(input, "utf8").replaceAll("10.1.0.2", "10.1.0.22"));
    expect(await ended, await stderr).toEqual([0, null]);
    expect(existsSync(socket)).toBe(false);
  });
});

test.each(["to-json", "to-plan"])("SIGTERM ends %s while nobody reads its output", async (sink) => {
  const args = ["simulate", "--services", "1000", "--changes", "0", "to-local", sink, "--node-name", "node-0"];
  const backend = spawn(process.execPath, [programFile("cli"), ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const exited = once(backend, "exit");
  // Nobody takes more than the first bytes, so the output fills the pipe.
  await once(backend.stdout, "readable");
  backend.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
});

test("the error for a socket in a missing folder names the folder", async () => {
  const program = kpng(["file", "-i", "/dev/null", "to-api", "--listen", `unix://${at("none/api.sock")}`]);
  expect(await program.ended).toBe(1);
  expect(program.stderr()).toContain(`folder ${at("none")} does not exist`);
});
