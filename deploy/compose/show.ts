import { lookup } from "node:dns/promises";
import { rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { findTrace, formatTrace } from "./trace.ts";

// Shows docker-compose.yaml at work: requests through each backend, one change, and the trace of that change.
//
//   docker compose exec client node /compose/show.ts

/** One way to reach pods, and the backend whose rules lead there. */
interface Route {
  readonly backend: string;
  readonly url: string;
}

/** Nodes that are only started on request, because the machine's kernel may lack what they need. */
const onRequest: readonly Route[] = [
  { backend: "ipvs", url: "http://ipvs:30080/" },
  { backend: "ebpf", url: "http://ebpf:30080/" },
];

async function isStarted({ backend }: Route): Promise<boolean> {
  return lookup(backend).then(
    () => true,
    () => false,
  );
}

const started = await Promise.all(onRequest.map(isStarted));

const routes: readonly Route[] = [
  { backend: "nft", url: "http://nft:30080/" },
  { backend: "iptables", url: "http://iptables:30080/" },
  ...onRequest.filter((_, index) => started[index] === true),
  { backend: "userspace", url: "http://userspace:30080/" },
  { backend: "nft", url: "http://198.51.100.10:8080/" },
];

/** Requests for one line of output. With three pods, one of them answers none with a probability of 10⁻⁷. */
const requests = 40;

/** Time limit of each wait, in milliseconds. */
const limitMs = 60_000;

/** The file that the change adds. The watcher reads this folder beside the manifests of the repository. */
const file = "/run/kpng/pod-3.yaml";

/** Adds pod-3 to both Services of the manifests. JSON documents are YAML documents, too. */
const change = [
  makeSlice("web", {}, [{ name: "http", port: 8080, protocol: "TCP" }]),
  makeSlice("whole-address", { "service.kubernetes.io/headless": "", "kpng.dev/map-ip": "true" }, []),
]
  .map((slice) => JSON.stringify(slice))
  .join("\n---\n");

function makeSlice(service: string, labels: Readonly<Record<string, string>>, ports: readonly unknown[]): unknown {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      namespace: "default",
      name: `${service}-b`,
      labels: { "kubernetes.io/service-name": service, ...labels },
    },
    addressType: "IPv4",
    ports,
    endpoints: [
      {
        addresses: ["10.123.0.13"],
        conditions: { ready: true, serving: true, terminating: false },
        nodeName: "nft",
        targetRef: { kind: "Pod", namespace: "default", name: "pod-3" },
      },
    ],
  };
}

async function main(): Promise<void> {
  rmSync(file, { force: true });
  for (const route of routes) print(route, await until(route, 2));
  const startedAt = Date.now();
  writeFileSync(file, change);
  process.stdout.write("pod-3 joins both Services\n");
  for (const route of routes) print(route, await until(route, 3));
  const backends = [...new Set(routes.map(({ backend }) => backend)), "callout", "json"];
  const trace = await findTrace(startedAt, backends, AbortSignal.timeout(limitMs));
  process.stdout.write(`${formatTrace(trace)}http://127.0.0.1:16686/trace/${trace.id}\n`);
  rmSync(file);
}

/** Sends requests until so many pods answer, and every request is answered. Throws after the time limit. */
async function until(route: Route, pods: number): Promise<readonly string[]> {
  const end = Date.now() + limitMs;
  for (;;) {
    const answers = await answersOf(route.url);
    if (answers.length === requests && new Set(answers).size === pods) return answers;
    if (Date.now() > end)
      throw new Error(`${route.backend}: ${route.url} was answered by ${count(answers) || "no pod"}`);
    await sleep(200);
  }
}

/** Returns the answer to each request; requests that failed are missing. */
async function answersOf(url: string): Promise<readonly string[]> {
  const answers = await Promise.all(Array.from({ length: requests }, () => answerOf(url)));
  return answers.filter((answer) => answer !== undefined);
}

/** Sends one request over a connection of its own, because rules choose a pod for each connection. */
function answerOf(url: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const request = get(url, { agent: false, timeout: 2_000 }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      response.once("end", () => resolve(text));
    });
    request.once("timeout", () => request.destroy());
    request.once("error", () => resolve(undefined));
  });
}

function print({ backend, url }: Route, answers: readonly string[]): void {
  process.stdout.write(`${backend.padEnd(9)} ${url.padEnd(28)} ${count(answers)}\n`);
}

/** Formats answers as `pod-1 20, pod-2 20`. */
function count(answers: readonly string[]): string {
  const pods = [...new Set(answers)].sort();
  return pods.map((pod) => `${pod} ${answers.filter((answer) => answer === pod).length}`).join(", ");
}

await main();
