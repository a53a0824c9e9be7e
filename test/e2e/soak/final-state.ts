import type { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { Answer } from "@kpng/laboratory/agent/request.ts";
import type { Cluster } from "../cluster/cluster.ts";
import type { Backend } from "../proxy/images.ts";
import { changedLabel, type Endpoint, servicePort } from "./changed-services.ts";

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
