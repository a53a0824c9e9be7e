import { once } from "node:events";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import type { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Answer } from "@kpng/laboratory/agent/request.ts";
import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { until } from "../../cluster/until.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { controlPlaneName } from "../cluster/network.ts";
import type { Backend } from "../proxy/images.ts";
import { watcherCount } from "../proxy/install.ts";
import { changedLabel, type Endpoint, servicePort } from "./changed-services.ts";
import type { ChangerOptions, ChangerTotals } from "./changer.ts";
import { disturb, planChaos } from "./chaos.ts";
import { type Growth, growthOf, type MemoryCurve, MemorySampler } from "./memory.ts";
import { type AgentPods, createAgentPods, SteadyTraffic, type TrafficTotals } from "./traffic.ts";

/** Required result of a connection from a node to a Service. */
type Expected =
  | { readonly kind: "answered"; readonly names: ReadonlySet<string> }
  /** No endpoint exists. */
  | { readonly kind: "refused" }
  /** The policy is Local, and the node has none of the endpoints. */
  | { readonly kind: "silent" };

interface ServiceObject {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly clusterIP: string; readonly internalTrafficPolicy: string };
}

interface SliceObject {
  readonly metadata: { readonly name: string };
  readonly endpoints: readonly { readonly addresses: readonly string[]; readonly nodeName: string }[] | null;
}

/** A Service of the cluster and the pods in its slice. */
interface ServedService {
  readonly name: string;
  readonly clusterIP: string;
  readonly isLocal: boolean;
  readonly endpoints: readonly Endpoint[];
}

/** Reads the Services that changed and their endpoints from the API server, without any part of kpng. */
export async function readServices({ kubectl }: Cluster, pods: readonly Endpoint[]): Promise<readonly ServedService[]> {
  const read = async <T>(kind: string): Promise<readonly T[]> => {
    const text = await kubectl.run(["get", kind, `--selector=${changedLabel}`, "--output=json"]);
    return (JSON.parse(text) as { readonly items: readonly T[] }).items;
  };
  const slices = new Map((await read<SliceObject>("endpointslices")).map((slice) => [slice.metadata.name, slice]));
  return (await read<ServiceObject>("services")).map(({ metadata: { name }, spec }) => {
    const addresses = (slices.get(name)?.endpoints ?? []).flatMap((endpoint) => endpoint.addresses);
    return {
      name,
      clusterIP: spec.clusterIP,
      isLocal: spec.internalTrafficPolicy === "Local",
      endpoints: pods.filter(({ address }) => addresses.includes(address)),
    };
  });
}

/** Sends packets from a node to every Service, and returns a line for each that is not served as it must be. */
export async function wrongServices(
  services: readonly ServedService[],
  nodeName: string,
  client: AgentClient,
): Promise<readonly string[]> {
  const lines: string[] = [];
  for (const service of services) {
    const expected = expectedOn(nodeName, service);
    // Silence is the right answer only to some, so only there the wait is short.
    const isAnswered = expected.kind === "answered";
    const timeoutMs = expected.kind === "silent" ? 1_000 : 10_000;
    const target = { protocol: "tcp", address: service.clusterIP, port: servicePort, timeoutMs } as const;
    const counts = isAnswered
      ? { atOnce: 4, atMost: 200, wanted: expected.names.size }
      : { atOnce: 1, atMost: 1, wanted: 1 };
    const answers = await client.send({ kind: "ask", ...target, ...counts });
    const problem = problemOf(expected, answers);
    if (problem !== undefined) lines.push(`${service.name} on ${nodeName}: ${problem}`);
  }
  return lines;
}

function expectedOn(nodeName: string, { isLocal, endpoints }: ServedService): Expected {
  if (endpoints.length === 0) return { kind: "refused" };
  const used = isLocal ? endpoints.filter((endpoint) => endpoint.nodeName === nodeName) : endpoints;
  return used.length === 0 ? { kind: "silent" } : { kind: "answered", names: new Set(used.map(({ name }) => name)) };
}

function problemOf(expected: Expected, answers: readonly Answer[]): string | undefined {
  const names = new Set(answers.flatMap((answer) => (answer.kind === "answer" ? [answer.name] : [])));
  const others = answers.filter(({ kind }) => kind !== "answer").map(({ kind }) => kind);
  if (expected.kind !== "answered") {
    return others[0] === expected.kind ? undefined : `expected ${expected.kind}, but got ${others[0] ?? [...names]}`;
  }
  const isEqual = names.size === expected.names.size && [...names].every((name) => expected.names.has(name));
  if (isEqual && others.length === 0) return undefined;
  return `expected answers of ${[...expected.names]}, but got ${[...names, ...others]}`;
}

/**
 * Returns what `--diff` says about the rules on the node of a backend's pod, which asks a watcher for the view;
 * undefined if there is no difference.
 */
export async function ruleDifference({ kubectl }: Cluster, backend: Backend, pod: string): Promise<string | undefined> {
  const command = [`kpng-${backend}`, "--diff"];
  try {
    await kubectl.run(["exec", "--namespace=kube-system", pod, "--", ...command]);
    return undefined;
  } catch (error) {
    return `${pod}: ${String(error)}`;
  }
}

export interface SoakOptions {
  readonly backend: Backend;
  readonly durationMs: number;
  readonly seed: number;
  /** Whether the nodes have images of a previous version, with the tag `previous`. */
  readonly hasPrevious: boolean;
  /** Called with each line of the log. */
  readonly log: (line: string) => void;
}

export interface SoakResult {
  readonly disturbances: number;
  readonly changes: ChangerTotals;
  readonly traffic: TrafficTotals;
  readonly growths: readonly Growth[];
  /** A line for each rule that differs, and each Service that is not served as the cluster's state says. */
  readonly wrong: readonly string[];
  /** Time from the last change until rules and packets were as the cluster's state says. */
  readonly settledMs: number;
}

/** Returns a line for everything that a soak must not have: a healthy result has none. */
export function problemsOf({ wrong, traffic, growths }: SoakResult): readonly string[] {
  const grown = growths.filter(({ isFlat }) => !isFlat);
  return [...wrong, ...traffic.wrong, ...grown.map(({ name, early, late }) => `${name}: ${early} → ${late} MiB`)];
}

const serviceCount = 40;
/** Accepted changes per second, on average over the whole soak. */
export const changesPerSecond = 50;
/** Longest time until everything works again: kubelet waits up to 40 s before it restarts a container once more. */
const settleLimitMs = 300_000;

/**
 * Disturbs an installed kpng for `durationMs`, while Services change and connections are open, and then compares the
 * rules of every node with the state of the cluster.
 */
export async function soak(cluster: Cluster, options: SoakOptions): Promise<SoakResult> {
  const { backend, durationMs, seed, hasPrevious, log } = options;
  const pods = await createAgentPods(cluster);
  const traffic = await SteadyTraffic.start(cluster, pods);
  const changer = await startChanger(cluster, pods, seed);
  const memory = new MemorySampler(cluster.nodes, backend);
  const nodes = cluster.nodes.map(({ name }) => name);
  const plan = planChaos(makeRandomBelow(makeRandom(seed)), {
    ...{ durationMs, nodes, hasPrevious },
    watcherNodes: nodes.slice(0, watcherCount),
  });
  const startMs = performance.now();
  const elapsedMs = (): number => performance.now() - startMs;
  let curves: readonly MemoryCurve[] = [];
  try {
    for (const { atMs, disturbance } of plan) {
      await sleep(Math.max(0, atMs - elapsedMs()));
      log(`${(elapsedMs() / 1000).toFixed(1)} s: ${await disturb(cluster, backend, disturbance)}`);
    }
    await sleep(Math.max(0, durationMs - elapsedMs()));
  } finally {
    curves = await memory.stop();
  }
  const changes = await changer.stop();
  const endMs = performance.now();
  let wrong: readonly string[] = ["nothing was compared"];
  const isSettled = async (): Promise<boolean> => {
    wrong = await compare(cluster, backend, pods, traffic);
    return wrong.length === 0;
  };
  await until("rules and packets are as the cluster's state says", isSettled, settleLimitMs).catch(() => undefined);
  const settledMs = performance.now() - endMs;
  return {
    disturbances: plan.length,
    changes,
    traffic: await traffic.end(),
    growths: curves.map(growthOf).filter((growth) => growth !== undefined),
    wrong,
    settledMs,
  };
}

/** Returns what differs from the cluster's state: pods that do not run, rules, and the answers of Services. */
async function compare(
  cluster: Cluster,
  backend: Backend,
  pods: AgentPods,
  traffic: SteadyTraffic,
): Promise<readonly string[]> {
  const { kubectl } = cluster;
  const kubeSystem = "--namespace=kube-system";
  for (const owner of ["deployment/kpng-watcher", `daemonset/kpng-${backend}`]) {
    await kubectl.run(["rollout", "status", kubeSystem, owner, "--timeout=50s"]);
  }
  const selector = `--selector=app.kubernetes.io/component=${backend}`;
  const names = (await kubectl.run(["get", "pods", kubeSystem, selector, "--output=name"])).trim().split("\n");
  const differences = await Promise.all(names.map((pod) => ruleDifference(cluster, backend, pod)));
  const services = await readServices(cluster, pods.endpoints);
  const answers = await Promise.all(
    [...traffic.clients].map(([nodeName, client]) => wrongServices(services, nodeName, client)),
  );
  return [...differences.filter((difference) => difference !== undefined), ...answers.flat()];
}

interface Changer {
  /** Ends the changes and returns how many there were. */
  stop(): Promise<ChangerTotals>;
}

async function startChanger(cluster: Cluster, pods: AgentPods, seed: number): Promise<Changer> {
  const { laboratory, controlPlane, folder } = cluster;
  const options: ChangerOptions = {
    server: controlPlane.server,
    caFile: join(folder, "control-plane/certificates/apiserver.crt"),
    endpoints: pods.endpoints,
    ...{ seed, serviceCount, changesPerSecond },
  };
  const program = join(import.meta.dirname, "changer.ts");
  const child = laboratory.start(controlPlaneName, [process.execPath, program, JSON.stringify(options)]);
  const { stdin, stdout, stderr } = child;
  if (stdin === null || stdout === null || stderr === null) throw new Error("the changer has no pipes");
  let errors = "";
  stderr.on("data", (data) => {
    errors += String(data);
  });
  const lines = createInterface({ input: stdout });
  const next = (): Promise<string> => nextLine(lines, () => errors);
  await next();
  return {
    stop: async () => {
      const totals = next();
      stdin.end();
      return JSON.parse(await totals) as ChangerTotals;
    },
  };
}

async function nextLine(lines: Interface, errors: () => string): Promise<string> {
  const ended = once(lines, "close").then(() => {
    throw new Error(`the changer has exited: ${errors()}`);
  });
  return Promise.race([once(lines, "line").then(([line]) => String(line)), ended]);
}
