import { once } from "node:events";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Program, startProgram } from "@kpng/backend-kit/testing/program.ts";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { NodeProcess } from "@kpng/laboratory/node-process.ts";
import { named, nodes, type State, together } from "@kpng/laboratory/scenario/build.ts";
import { freePorts, portOf } from "../cluster/ports.ts";
import { until } from "../cluster/until.ts";

/** Output of /metrics, by the name of the program. */
export type Scrapes = ReadonlyMap<string, string>;

const cli = "services/cli/src/main.ts";

/** Returns a state with a Service of each kind that has metrics. */
function stateWith(pods: readonly ("a" | "b" | "c")[]): State {
  const kept = {
    number: 14,
    ports: [{ port: 80, nodePort: 30_081 }],
    external: "Local",
    healthCheckNodePort: 30_100,
  } as const;
  return changedNow(together(named("web", { number: 11 }, [...pods]), named("kept", kept, ["d"])));
}

/** Returns the state with the time of the last change at its endpoints. */
export function changedNow({ services, slices }: State): State {
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": new Date().toISOString() };
  return {
    services,
    slices: slices.map((slice) => ({ ...slice, metadata: { ...slice.metadata, annotations } })),
  };
}

/**
 * Runs every program that has metrics, changes the cluster, makes one watcher unreachable, and returns the metrics of
 * each program. kpng-iptables runs in its own network namespace.
 *
 * Errors: LaboratoryUnavailable if namespaces are not available.
 */
export async function scrapePrograms(): Promise<Scrapes> {
  const laboratory = await Laboratory.open();
  const folder = await mkdtemp(join(tmpdir(), "kpng-scrape-"));
  const api = fakeApi({ nodes: nodes.map(withVersion), services: stateWith(["a"]).services.map(withVersion) });
  await once(api.listen(0, "127.0.0.1"), "listening");
  const programs: Program[] = [];
  try {
    await laboratory.add("node");
    const write = async (state: State): Promise<void> => {
      const items = [...nodes, ...state.services, ...state.slices];
      await writeFile(join(folder, "next"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
      await rename(join(folder, "next"), join(folder, "state.json"));
    };
    await write(stateWith(["a", "b"]));
    const ports = await freePorts(5);
    const observe = (index: number): string[] => {
      const address = `127.0.0.1:${ports[index]}`;
      return ["--metrics-bind-address", address, "--healthz-bind-address", address];
    };
    const socket = `unix://${join(folder, "api.sock")}`;
    const start = async (main: string, args: readonly string[], said: string): Promise<Program> => {
      const program = startProgram(pathToFileURL(main), args);
      programs.push(program);
      await program.said(said);
      return program;
    };
    await start(
      cli,
      ["file", "-i", join(folder, "state.json"), "to-api", "--listen", socket, ...observe(0)],
      "input read",
    );
    const other = (name: string): string[] => ["to-api", "--listen", `unix://${join(folder, name)}`];
    await Promise.all([
      start(
        cli,
        ["kube", "--server", `http://127.0.0.1:${portOf(api)}`, ...other("kube.sock"), ...observe(1)],
        '"kind":"nodes"',
      ),
      start(cli, ["api", "--api", socket, ...other("relay.sock"), ...observe(2)], "upstream watcher in sync"),
      ...(["json", "callout"] as const).map((name, index) =>
        start(
          `services/backend-${name}/src/main.ts`,
          ["--api", socket, "--node-name", "n1", ...observe(3 + index)],
          "in sync",
        ),
      ),
    ]);
    const inNode = (main: string, args: readonly string[]): (() => string) => {
      const program = new NodeProcess(laboratory, "node");
      program.start([process.execPath, fileURLToPath(new URL(`../../${main}`, import.meta.url)), ...args]);
      return () => program.log();
    };
    const iptables = "services/backend-iptables/src/main.ts";
    const common = ["--api", socket, "--node-name", "n1", "--cluster-cidr", "10.1.0.0/16"];
    const state = ["--state-dir", join(folder, "state"), "--iptables-min-sync-period", "0s"];
    const iptablesLog = inNode(iptables, [...common, ...state, ...addresses("127.0.0.1:10271")]);
    const nftState = ["--state-dir", join(folder, "nft-state"), ...addresses("127.0.0.1:10275")];
    const nftLog = inNode("services/backend-nft/src/main.ts", [...common, ...nftState]);
    const carried = ["--map", "127.0.0.1", "--state-dir", "none", ...addresses("127.0.0.1:10276")];
    const userspaceLog = inNode("services/backend-userspace/src/main.ts", [...common, ...carried]);
    const scrapeHere = (index: number): Promise<string> => get(`http://127.0.0.1:${ports[index]}/metrics`);
    const scrapeNode = (port: number, path = "metrics"): Promise<string> => {
      const script = `fetch("http://127.0.0.1:${port}/${path}").then(async (answer) => console.log(await answer.text()))`;
      return laboratory.run("node", [process.execPath, "-e", script]);
    };
    const isApplied = async (count: number, port = 10_271): Promise<boolean> => {
      const text = await scrapeNode(port);
      return sumOf(text, "kubeproxy_sync_proxy_rules_duration_seconds_count", 'ip_family="IPv4"') >= count;
    };
    await until("kpng-iptables has synced", () => isApplied(1), 60_000, iptablesLog);
    await until("kpng-nft has synced", () => isApplied(1, 10_275), 60_000, nftLog);
    await until("kpng-userspace has synced", () => isApplied(1, 10_276), 60_000, userspaceLog);
    await write(stateWith(["b", "c"]));
    await until(
      "the change has been applied everywhere",
      async () => sumOf(await scrapeHere(0), "kpng_apply_seconds_count") > 0,
    );
    await until("kpng-iptables has synced again", () => isApplied(2), 60_000, iptablesLog);
    await Promise.all(["livez", "healthz"].map((path) => scrapeNode(10_271, path)));
    return new Map([
      ["kpng file to-api", await scrapeHere(0)],
      ["kpng kube to-api", await scrapeHere(1)],
      ["kpng api to-api", await scrapeHere(2)],
      ["kpng-json", await scrapeHere(3)],
      ["kpng-callout", await scrapeHere(4)],
      ["kpng-iptables", await scrapeNode(10_271)],
      ["kpng-nft", await scrapeNode(10_275)],
      ["kpng-userspace", await scrapeNode(10_276)],
    ]);
  } finally {
    for (const program of programs) program.kill();
    await Promise.all(programs.map(({ ended }) => ended));
    api.closeAllConnections();
    api.close();
    await laboratory.close();
    await rm(folder, { recursive: true });
  }
}

function addresses(address: string): readonly string[] {
  return ["--metrics-bind-address", address, "--healthz-bind-address", address];
}

/** A server with the lists of the Kubernetes API, by the last part of their path; nothing in them changes. */
function fakeApi(lists: Readonly<Record<string, readonly unknown[]>>): Server {
  return createServer((request, response) => {
    const url = new URL(request.url ?? "", "http://localhost");
    // A watch stays open without events.
    if (url.searchParams.has("watch")) return response.flushHeaders();
    const items = lists[url.pathname.split("/").at(-1) ?? ""] ?? [];
    response.end(JSON.stringify({ metadata: { resourceVersion: "7" }, items }));
  });
}

function withVersion<T extends { readonly metadata: object }>(object: T): T {
  return { ...object, metadata: { ...object.metadata, resourceVersion: "7" } };
}

async function get(url: string): Promise<string> {
  return (await fetch(url)).text();
}

function sumOf(text: string, name: string, label = ""): number {
  const lines = text.split("\n").filter((line) => line.startsWith(name) && line.includes(label));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}
