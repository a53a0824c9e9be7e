import { create, type DescMessage, equals, type Message } from "@bufbuild/protobuf";
import { ConnectError, type Transport } from "@connectrpc/connect";
import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  InspectService,
  ListChangesResponseSchema,
  ListNodesResponseSchema,
  ListSubscribersResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import {
  type InspectClient,
  inspectClient,
  pageSize,
  type Question,
  type Replica,
  readPages,
  requestFailure,
} from "./client.ts";
import { terminalText, toMs } from "./print/text.ts";

/** The answer of one of several replicas, or the reason why it did not answer. */
export type Answer<T> = { readonly api: string } & ({ readonly value: T } | { readonly reason: string });

/** Returns the answers of the replicas that answered. */
export function repliesOf<T>(answers: readonly Answer<T>[]): readonly { readonly api: string; readonly value: T }[] {
  return answers.filter((one) => "value" in one);
}

/**
 * Queries every replica. If there are several, a failing one does not hold back the answers of the others.
 *
 * Errors: those of `ask` if no replica answers.
 */
export async function askAll<T>(
  replicas: readonly Replica[],
  ask: (client: InspectClient, replica: Replica) => Promise<T>,
): Promise<readonly Answer<T>[]> {
  const errors: ConnectError[] = [];
  const answers = await Promise.all(
    replicas.map(async (replica): Promise<Answer<T>> => {
      const { api, transport } = replica;
      try {
        return { api, value: await ask(inspectClient(transport), replica) };
      } catch (error) {
        if (!(error instanceof ConnectError)) throw error;
        errors.push(error);
        return { api, reason: requestFailure(error) };
      }
    }),
  );
  if (errors.length === replicas.length) throw errors[0];
  return answers;
}

/** Answers that differ between replicas that agree about the cluster. */
const ownAnswers: readonly string[] = [InspectService.method.getStatus.name, InspectService.method.listFindings.name];

/**
 * Returns a client and its transport, which query all replicas, so that a command can query them as if they were one.
 *
 * | Answer | Joined |
 * |---|---|
 * | nodes | each node as seen by the replica that it follows; for the other replicas, the node is absent |
 * | streams, changes | from all replicas; the source of a change also names the replica |
 * | status, findings | from the first replica |
 * | all others (only about the cluster's objects) | from the first replica, with a warning if another one differs |
 *
 * If a replica does not answer, a warning is printed on standard error, and it is not asked again. A stream follows only
 * the first replica.
 *
 * Errors: the error of a replica if none answers.
 */
export function joinReplicas(replicas: readonly Replica[]): Pick<Question, "client" | "transport"> {
  const [first] = replicas;
  if (first === undefined) throw new Error("no replica");
  if (replicas.length === 1) return { client: inspectClient(first.transport), transport: first.transport };
  const warned = new Set<string>();
  const warn = (text: string): void => {
    if (!warned.has(text)) process.stderr.write(terminalText(`warning: ${text}\n`));
    warned.add(text);
  };
  const silent = new Set<string>();
  const askEach = async <T>(ask: Parameters<typeof askAll<T>>[1]) => {
    // A long list has many pages, and each would wait for a replica that hangs.
    const answering = replicas.filter(({ api }) => !silent.has(api));
    const answers = await askAll(answering.length === 0 ? replicas : answering, ask);
    for (const one of answers) {
      if ("value" in one) continue;
      silent.add(one.api);
      warn(`${one.api} does not answer: ${one.reason}`);
    }
    return repliesOf(answers);
  };
  const transport: Transport = {
    async unary(method, ...call) {
      const [answer, ...others] = await askEach((_, { transport }) => transport.unary(method, ...call));
      if (answer === undefined) throw new Error("no answer");
      // Each replica counts its own revisions.
      const plain = (message: Message): Message => Object.assign({ ...message }, { revision: 0n });
      for (const { api, value } of ownAnswers.includes(method.name) ? [] : others) {
        if (equals<DescMessage>(method.output, plain(answer.value.message), plain(value.message))) continue;
        warn(
          `${answer.api} and ${api} answer differently, and this is ${answer.api}'s answer: kpng status compares them`,
        );
      }
      return answer.value;
    },
    stream(...call) {
      warn(`only ${first.api} is followed, one of ${replicas.length}: nodes that follow another are absent there`);
      return first.transport.stream(...call);
    },
  };
  const client: InspectClient = {
    ...inspectClient(transport),
    async listNodes(request) {
      // Do not let replicas filter by state: to each of them, most nodes are absent.
      const all = { ...request, states: [], pageSize };
      const lists = await askEach((one) => readPages(one.listNodes, all, (page) => page.nodes));
      const nodes = joinNodes(lists.map(({ value }) => value));
      const { states = [] } = request;
      const selected = nodes.filter(({ state }) => states.length === 0 || states.includes(state));
      return create(ListNodesResponseSchema, { nodes: selected });
    },
    async listSubscribers(request) {
      const all = { ...request, pageSize };
      const lists = await askEach((one) => readPages(one.listSubscribers, all, (page) => page.subscribers));
      return create(ListSubscribersResponseSchema, { subscribers: lists.flatMap(({ value }) => value) });
    },
    async listChanges(request) {
      const storedMs = ({ storedAt }: Change): number => (storedAt === undefined ? 0 : toMs(storedAt));
      const lists = await askEach((one) => one.listChanges(request));
      const changes = lists
        .flatMap(({ api, value }) => value.changes.map((one) => ({ ...one, source: `${one.source} of ${api}` })))
        .sort((one, other) => storedMs(other) - storedMs(one))
        .slice(0, request.pageSize);
      return create(ListChangesResponseSchema, { changes });
    },
  };
  return { client, transport };
}

/**
 * Joins the nodes of several replicas: each node as seen by the replica that it follows or, if it follows none, by any
 * of them. Pure.
 */
export function joinNodes(lists: readonly (readonly Node[])[]): Node[] {
  const nodes = new Map<string, Node>();
  for (const node of lists.flat()) {
    const known = nodes.get(node.name);
    if (known === undefined || known.state === ApplyState.ABSENT) nodes.set(node.name, node);
  }
  return [...nodes.values()];
}
