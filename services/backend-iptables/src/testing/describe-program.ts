import { once } from "node:events";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { HttpAnswer } from "@kpng/laboratory/agent/request.ts";
import type { CommandResult } from "@kpng/laboratory/laboratory.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, afterEach, beforeAll, beforeEach, vi } from "vitest";
import { until } from "../../../../test/cluster/until.ts";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";
import { serviceManifests } from "./manifests.ts";

const cli = fileURLToPath(new URL("../../../cli/src/main.ts", import.meta.url));
/** Path of the program kpng-iptables. */
export const main = fileURLToPath(new URL("../main.ts", import.meta.url));

const node = { apiVersion: "v1", kind: "Node", metadata: { name: "n1" }, status: { addresses: [] } };

/** Manifests of Services `a/NAME`, each with an endpoint. */
function manifests(endpoints: Readonly<Record<string, string>>): readonly unknown[] {
  return Object.entries(endpoints).flatMap(([name, endpoint], at) =>
    serviceManifests({ name, clusterIP: `10.96.${at}.10`, endpoint }),
  );
}

interface Running {
  /** Returns the output so far. */
  said(): string;
  /** Resolves when the output matches. */
  says(pattern: RegExp): Promise<unknown>;
  stop(): Promise<void>;
}

/** The node of the present test. Its functions may be destructured. */
interface ProgramNode {
  /** Folder of the node's files. */
  readonly folder: () => string;
  /** Runs a command in the namespace of the node, and returns its output. Errors: one that fails. */
  readonly run: (command: readonly string[], input?: string) => Promise<string>;
  /** Like `run`, but returns the exit status, too. */
  readonly tryRun: (command: readonly string[], input?: string) => Promise<CommandResult>;
  /** Starts a process, which ends with the test. */
  readonly start: (command: readonly string[]) => Running;
  /** Replaces the state of the cluster: endpoints of the Services `a/NAME`, by name. */
  readonly put: (endpoints: Readonly<Record<string, string>>) => Promise<void>;
  /** Starts a watcher. Backends that are started before it wait for it. */
  readonly startWatcher: () => Running;
  /** Returns the command that starts kpng-iptables with more options. */
  readonly command: (...options: readonly string[]) => readonly string[];
  /** Returns our rules of both families, without counters. */
  readonly rules: () => Promise<string>;
  /** Resolves when a rule leads to this address. */
  readonly serves: (address: string) => Promise<unknown>;
  /** Sends an HTTP request to the backend's port for health and metrics. */
  readonly ask: (path: string) => Promise<HttpAnswer>;
  /** Returns a part of the answer to /readyz. */
  readonly partOf: (part: string) => Promise<Record<string, unknown>>;
}

/**
 * Describes tests of the program kpng-iptables with a watcher of its own. Each test has a new node, whose processes end
 * with it.
 */
export function describeProgram(title: string, body: (node: ProgramNode) => void): void {
  // A test starts several programs, and a saved view is used only after three seconds.
  vi.setConfig({ testTimeout: 120_000 });
  describePackets(title, () => body(openNode()));
}

function openNode(): ProgramNode {
  let laboratory: Laboratory;
  let count = 0;
  let name: string;
  let folder: string;
  let running: Running[] = [];
  /** Sends HTTP requests in the namespace of the node; started by the first request. */
  let agent: Promise<AgentClient> | undefined;

  beforeAll(async () => {
    laboratory = await Laboratory.open();
  });
  afterAll(() => laboratory.close());
  beforeEach(async () => {
    name = `node${count++}`;
    await laboratory.add(name);
    folder = join(laboratory.folder, name);
    await mkdir(join(folder, "input"), { recursive: true });
  });
  afterEach(async () => {
    for (const each of running) await each.stop();
    running = [];
    agent = undefined;
  });

  function start(command: readonly string[]): Running {
    const child = laboratory.start(name, command);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    }
    const closed = once(child, "close");
    const started: Running = {
      said: () => output,
      says: (pattern) =>
        until(
          String(pattern),
          () => pattern.test(output),
          20_000,
          () => output.slice(-3_000),
        ),
      stop: async () => {
        child.kill("SIGTERM");
        await closed;
      },
    };
    running.push(started);
    return started;
  }

  async function put(endpoints: Readonly<Record<string, string>>): Promise<void> {
    const items = [node, ...manifests(endpoints)];
    await writeFile(join(folder, "state.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await rename(join(folder, "state.json"), join(folder, "input", "state.json"));
  }

  function startWatcher(): Running {
    const listen = ["to-api", "--listen", `unix://${folder}/sock`];
    return start([process.execPath, cli, "file", "-i", join(folder, "input"), ...listen]);
  }

  const command = (...options: readonly string[]): readonly string[] => [
    ...[
      process.execPath,
      main,
      "--api",
      `unix://${folder}/sock`,
      "--node-name",
      "n1",
      "--iptables-sync-period",
      "200ms",
    ],
    ...["--healthz-bind-address", "127.0.0.1:10270", "--error-delay", "200ms", "--log-level", "debug", ...options],
  ];

  async function rules(): Promise<string> {
    const tools = ["iptables-save", "ip6tables-save"];
    const saved = await Promise.all(tools.map((tool) => laboratory.run(name, [tool])));
    return saved
      .flatMap((text) => text.split("\n"))
      .filter((line) => line.includes("KPNG-") && !line.startsWith(":"))
      .join("\n");
  }

  const serves = (address: string) =>
    until(
      `a rule for ${address}`,
      async () => (await rules()).includes(`--to-destination ${address}:8080`),
      20_000,
      () => running.map(({ said }) => said().slice(-2_000)).join("\n"),
    );

  async function ask(path: string): Promise<HttpAnswer> {
    agent ??= AgentClient.start(laboratory, name, [], []);
    const target = { address: "127.0.0.1", port: 10_270, path, timeoutMs: 5_000 };
    return (await agent).send({ kind: "http", ...target });
  }

  const partOf = async (part: string): Promise<Record<string, unknown>> =>
    JSON.parse((await ask("/readyz")).body).parts[part];

  return {
    folder: () => folder,
    run: (words, input) => laboratory.run(name, words, input),
    tryRun: (words, input) => laboratory.tryRun(name, words, input),
    ...{ start, put, startWatcher, command, rules, serves, ask, partOf },
  };
}
