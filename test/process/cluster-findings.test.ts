import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect, test, vi } from "vitest";
import { freePort } from "../cluster/ports.ts";
import {
  expectGreen,
  expectNamed,
  lineOf,
  type Problem,
  replaceFile,
  startJson,
  startWatcher,
  surfaces,
} from "./finding-surfaces.ts";
import { usePrograms } from "./programs.ts";

// Everything that can be wrong with a cluster and with nodes. A surface that stays green is worse than none.

vi.setConfig({ testTimeout: 180_000, expect: { poll: { timeout: 60_000, interval: 100 } } });

const programs = usePrograms();
const { at, start } = programs;

/** Replaces the input of the watcher. */
function write(state: object): void {
  replaceFile(at("live.json"), JSON.stringify(state));
}

const node = (name: string, rest: object = {}) => ({ name, podcidrs: ["10.1.0.0/24"], ...rest });
const endpoint = (address: string, rest: object = {}) => ({ endpoint: { ips: { v4: [address] } }, ...rest });

/** A Service with a cluster IP that ends in `number`, and a ready endpoint. */
function service(
  name: string,
  number: number,
  rest: object = {},
  endpoints: readonly object[] = [endpoint("10.1.0.1")],
) {
  const ports = [{ protocol: 1, port: 80, targetport: 8080 }];
  const ips = { clusterips: { v4: [`10.96.0.${number}`] } };
  return { service: { name, type: "ClusterIP", ips, ports, createdseconds: number, ...rest }, endpoints };
}

function state(services: readonly object[], nodes: readonly object[] = [node("n1")]) {
  return { nodes, services };
}

const withExternal = (number: number, address: string) => ({
  ips: { clusterips: { v4: [`10.96.0.${number}`] }, externalips: { v4: [address] } },
});
const web = service("web", 1);
const goodState = state([web]);
const notReady = endpoint("10.1.0.1", { conditions: { ready: false } });
const draining = endpoint("10.1.0.1", { conditions: { ready: false, serving: true, terminating: true } });
const hinted = (address: string, zone: string) => endpoint(address, { hints: { zones: [zone] } });
const zones = [node("n1", { topology: { zone: "za" } })];
const strayed = { kind: "EndpointSlice", apiVersion: "discovery.k8s.io/v1", addressType: "IPv4" };

/** Problems of the cluster, each with the input that has it. */
const clusterProblems: readonly (Omit<Problem, "healthStatus"> & { readonly input: object })[] = [
  { code: "no-services", severity: "warning", says: "it holds no Service", input: state([]) },
  {
    code: "no-pod-cidrs",
    severity: "warning",
    says: "no Node has pod CIDRs",
    input: state([web], [{ name: "n1" }]),
  },
  { code: "no-endpoints", severity: "warning", says: "it has no endpoints", input: state([service("web", 1, {}, [])]) },
  {
    code: "none-ready",
    severity: "error",
    says: "none of its 1 endpoints is ready",
    input: state([service("web", 1, {}, [notReady])]),
  },
  {
    code: "only-terminating",
    severity: "warning",
    says: "1 that terminate still receive its traffic",
    input: state([service("web", 1, {}, [draining])]),
  },
  {
    code: "hints-incomplete",
    severity: "warning",
    says: "1 of 2 ready endpoints have no zone hint",
    input: state([service("web", 1, {}, [hinted("10.1.0.1", "za"), endpoint("10.1.0.2")])], zones),
  },
  {
    code: "hints-without-zone",
    severity: "warning",
    says: "its hints name no endpoint for zone za",
    input: state([service("web", 1, {}, [hinted("10.1.0.1", "zb")])], zones),
  },
  {
    code: "cluster-ip-claimed",
    severity: "error",
    says: "it claims 10.96.0.1, the cluster IP of service/default/web",
    input: state([web, service("thief", 2, withExternal(2, "10.96.0.1"))]),
  },
  {
    code: "frontend-claimed",
    severity: "error",
    says: "it gets no packets at 192.0.2.9:80/TCP, which service/default/first has",
    input: state([
      service("first", 2, withExternal(2, "192.0.2.9")),
      service("second", 3, withExternal(3, "192.0.2.9")),
    ]),
  },
  {
    code: "whole-address-of-node",
    severity: "error",
    says: "it asks for the whole address 192.0.2.1 of node/n1",
    input: state(
      [service("all", 2, { ...withExternal(2, "192.0.2.1"), mapip: true })],
      [node("n1", { addresses: ["192.0.2.1"] })],
    ),
  },
  {
    code: "slices-without-service",
    severity: "warning",
    says: "EndpointSlices name it, but it does not exist",
    input: {
      ...{ apiVersion: "v1", kind: "List" },
      items: [
        { apiVersion: "v1", kind: "Node", metadata: { name: "n1" }, spec: { podCIDRs: ["10.1.0.0/24"] } },
        {
          ...strayed,
          metadata: { name: "lost-1", namespace: "default", labels: { "kubernetes.io/service-name": "lost" } },
          ports: [{ port: 80 }],
          endpoints: [{ addresses: ["10.1.0.1"] }],
        },
      ],
    },
  },
];

test("every kind of problem of a cluster is named by every surface, until it is repaired", async () => {
  write(goodState);
  const watched = await startWatcher(programs, ["file", "-i", at("live.json")]);
  startJson(programs, watched.api, "n1");
  await expectGreen(watched);
  for (const { input, ...problem } of clusterProblems) {
    write(input);
    await expectNamed(watched, problem);
    write(goodState);
    await expectGreen(watched, `after ${problem.code}`);
  }
});

test("nodes that fail, hang at their first view, lack a backend, or do not exist, are named until they are repaired", async () => {
  const names = ["n1", "n2", "n3", "n4"];
  const nodes = names.map((name) => node(name));
  write(state([web], nodes));
  const watched = await startWatcher(programs, ["file", "-i", at("live.json")]);
  const { api } = watched;
  const json = new Map(names.map((name) => [name, startJson(programs, api, name)]));
  await expectGreen(watched);

  const end = async (program: Program | undefined): Promise<void> => {
    program?.kill();
    await program?.ended;
  };
  await Promise.all(["n1", "n2", "n3"].map((name) => end(json.get(name))));
  const of = (name: string) => ["--api", api, "--node-name", name, "--log-level", "off"];
  const callout = (name: string, ...command: string[]) =>
    start("services/backend-callout/src/main.ts", [...of(name), "--callout", ...command]);
  const health = `127.0.0.1:${await freePort()}`;
  const failing = callout("n1", "/bin/false", "--healthz-bind-address", health);
  const hanging = callout("n2", "/bin/sleep", "--callout-arg", "100", "--timeout", "90s");
  const unserved = ["--map", "127.0.0.1", "--state-dir", "none"];
  const ports = ["--healthz-bind-address", "", "--metrics-bind-address", ""];
  const partial = start("services/backend-userspace/src/main.ts", [...of("n4"), ...unserved, ...ports]);
  const stranger = startJson(programs, api, "n9");
  write(state([service("web", 1, { ...withExternal(1, "192.0.2.7"), mapip: true })], nodes));
  const problems: readonly Problem[] = [
    { code: "node-failing", severity: "error", says: "its last attempt to apply a change failed" },
    { code: "node-slow", severity: "error", says: "s to be applied" },
    { code: "node-unknown", severity: "error", says: "a backend follows it, but the cluster has no such Node" },
    {
      ...{ code: "whole-address-unserved", severity: "error" },
      says: "it asks for whole addresses, and kpng-userspace serves only its ports on n4",
    },
    { code: "node-absent", severity: "warning", says: "no backend of this node follows this watcher" },
  ];
  // `kpng status` names only the first three; its table shows the nodes.
  await expect
    .poll(() => surfaces(watched), { message: "five problems" })
    .toMatchObject({
      analyze: expect.toSatisfy((text: string) => problems.every(({ says }) => text.includes(says))),
      page: expect.toSatisfy((text: string) => problems.every((problem) => lineOf(problem).test(text))),
      ...{ exitCode: 1, errors: 4, warnings: 1, healthStatus: 200 },
    });
  const { status } = await surfaces(watched);
  expect(status).toMatch(/^findings +4 errors, 1 warning: run kpng analyze$/m);
  expect(status).toMatch(/^ +n1 +failing .*\n +n2 +behind .*\n +n3 +absent /m);
  expect((await fetch(`http://${health}/healthz`)).status).toBe(503);

  // A program that is killed would leave its own program behind.
  await hanging.endedAtOnce();
  await Promise.all([failing, partial, stranger].map(end));
  for (const name of ["n1", "n2", "n3"]) startJson(programs, api, name);
  await expectGreen(watched, "after the backends were replaced");
});
