import { cpSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import { beforeEach, describe, expect, test } from "vitest";
import { kpngMain, usePrograms } from "./programs.ts";

// The programs as a user starts them: only processes, sockets and files.
const fixtures = resolve("test/fixtures/kpng");

const { at, start } = usePrograms();
beforeEach(() => cpSync(join(fixtures, "input.yaml"), at("state.yaml")));

const kpng = (args: readonly string[], env: Record<string, string> = {}): Program => start(kpngMain, args, env);
const socket = (name = "api.sock"): string => `unix://${at(name)}`;

/** Starts a watcher that serves state.yaml. */
async function watcher(...more: string[]): Promise<Program> {
  const program = kpng(["file", "-i", at("state.yaml"), "to-api", "--listen", socket(), ...more]);
  await program.said('"msg":"input read"');
  return program;
}

function edit(from: string, to: string): void {
  const text = readFileSync(at("state.yaml"), "utf8");
  writeFileSync(at("next.yaml"), text.replaceAll(from, to));
  renameSync(at("next.yaml"), at("state.yaml"));
}

function lines(program: Program): string[] {
  return program.stdout().split("\n").filter(Boolean);
}

const tokenFlags = [...["--listen-tls-key", "key.pem", "--listen-tls-crt", "crt.pem"], ...["--token-audience", "kpng"]];

describe("the command line", () => {
  test.each([
    [
      ["file", "to-api", "--listen", "localhost"],
      1,
      '[BAD_OPTION] --listen "localhost" is not an address: write host:port, [IPv6]:port or :port, port 0 to 65535',
    ],
    [["file", "to-api", "--listen-tls-key", "key.pem"], 1, "missing: --listen-tls-crt, --listen-tls-ca"],
    [["file", "to-api", ...tokenFlags], 1, "[BAD_OPTION] --token-audience needs an API server: kpng kube, or kpng api"],
    [["file", "-i", "", "to-api"], 2, "the value is empty"],
    [["file", "to-api", "--node-accounts", "kpng"], 2, '"kpng" is not an account: write namespace/name'],
    [
      ["file", "-i", "/dev/null", "to-api", "--healthz-bind-address", "here"],
      1,
      '--metrics-bind-address "here" is not an address',
    ],
    [["local", "to-json", "--service-proxy-name", "my proxy"], 2, '"my proxy" is not a label value'],
    [["api", "--stale-after", "0", "to-api"], 2, '"0" is too short: at least 1s'],
    [["get", "rules", "--service", "web"], 2, "expected a Service as namespace/name"],
    [["local", "to-nothing"], 2, "unknown command 'to-nothing'"],
    [["local", "to-json", "--node-name", "x".repeat(254)], 2, "at most 253 characters"],
  ])("%j exits with %i and prints %j", async (args, code, message) => {
    const program = kpng(args);
    expect(await program.ended).toBe(code);
    expect(program.stderr().replaceAll('\\"', '"')).toContain(message);
    expect(program.stdout()).toBe("");
  });

  test("an environment variable with a false value enables nothing", async () => {
    const env = { KPNG_INPUT: at("state.yaml"), KPNG_ONCE: "false" };
    const program = kpng(["file", "to-local", "to-json", "--node-name", "n1"], env);
    await expect.poll(() => lines(program).length).toBe(2);
    edit("10.1.0.2", "10.1.0.22");
    await expect.poll(() => lines(program).length).toBe(4);
    const odd = kpng(["file", "to-local", "to-json"], { KPNG_ONCE: "perhaps" });
    expect(await odd.ended).not.toBe(0);
    expect(odd.stderr()).toContain("neither true nor false");
  });

  test("--service-proxy-name selects Services in a file, in what a relay serves, and in the view of a node", {
    timeout: 120_000,
  }, async () => {
    const services = [
      service({ name: "plain" }),
      service({ name: "first", proxyName: "mine", clusterIP: "10.96.0.2" }),
      service({ name: "second", proxyName: "other", clusterIP: "10.96.0.3" }),
    ];
    writeFileSync(at("state.yaml"), formatState({ services, slices: [], nodes: [node("n1")] }));
    await watcher();
    const mine = ["--service-proxy-name", "mine"];
    const relay = kpng(["api", "--api", socket(), ...mine, "to-api", "--listen", socket("relay.sock")]);
    await relay.said('"msg":"upstream watcher in sync"');
    for (const command of [
      ["file", "-i", at("state.yaml"), ...mine, "to-file", "-o", "-", "--once"],
      ["file", "-i", at("state.yaml"), ...mine, "to-local", "to-json", "--node-name", "n1", "--once"],
      ["api", "--api", socket(), ...mine, "to-file", "-o", "-", "--once"],
      ["api", "--api", socket(), ...mine, "to-local", "to-json", "--node-name", "n1", "--once"],
      ["get", "services", "--api", socket("relay.sock")],
    ]) {
      const program = kpng(command);
      expect(await program.ended, program.stderr()).toBe(0);
      const found = program.stdout().match(/\b(plain|first|second)\b/g);
      expect(new Set(found), command.join(" ")).toEqual(new Set(["first"]));
    }
  });

  test("options of the source may follow the sink, as in the original", async () => {
    const program = kpng(["file", "to-local", "to-json", "--once", "--node-name", "n1", "-i", at("state.yaml")]);
    expect(await program.ended, program.stderr()).toBe(0);
  });
});
