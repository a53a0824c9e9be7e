import { create, type DescMessage, equals, isMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { ConnectError, type Transport, type UnaryResponse } from "@connectrpc/connect";
import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  ExplainResponseSchema,
  ListChangesResponseSchema,
  ListEndpointsResponseSchema,
  ListNodeEndpointsResponseSchema,
  ListNodesRequestSchema,
  ListNodesResponseSchema,
  ListServicesResponseSchema,
  ListSubscribersRequestSchema,
  ListSubscribersResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { type Replica, requestFailure } from "./client.ts";
import { terminalText, timestampMs } from "./print/text.ts";

/**
 * Returns a transport that asks all replicas, so that a command asks several like one.
 *
 * | Answer | Joined |
 * |---|---|
 * | nodes | each as the replica knows it that it follows: for the others it is absent |
 * | streams, changes | of all replicas; the source of a change also names the replica |
 * | Services, endpoints, a view, an explanation | of the first replica, with a warning if another one differs |
 * | anything else | of the first replica |
 *
 * A replica that does not answer is a warning. A stream follows the first replica only. Warnings go to standard error.
 *
 * Errors: those of the first replica if none answers; BAD_OPTION for a revision, which each replica counts itself.
 */
export function joinReplicas(replicas: readonly Replica[]): Transport {
  const [first] = replicas;
  if (first === undefined) throw new Error("no replica");
  if (replicas.length === 1) return first.transport;
  const warned = new Set<string>();
  const warn = (text: string): void => {
    if (!warned.has(text)) process.stderr.write(terminalText(`warning: ${text}\n`));
    warned.add(text);
  };
  return {
    async unary(method, signal, timeoutMs, header, input, contextValues) {
      const request = create(method.input, input);
      const states = takeStates(request);
      const results = await Promise.allSettled(
        replicas.map(async ({ api, transport }): Promise<Reply> => {
          const ask = (one: typeof request) =>
            transport.unary(method, signal, timeoutMs, header, one as typeof input, contextValues);
          return { api, response: await readWhole(ask, request) };
        }),
      );
      const replies = results.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
      const failures = results.map((one) => (one.status === "rejected" ? (one.reason as unknown) : undefined));
      const [reply] = replies;
      if (reply === undefined) throw failures[0];
      for (const [index, error] of failures.entries()) {
        if (error !== undefined)
          warn(`${replicas[index]?.api} does not answer: ${requestFailure(ConnectError.from(error))}`);
      }
      const message = join(method.output, replies, states, warn);
      return { ...reply.response, message } as UnaryResponse<typeof method.input, typeof method.output>;
    },
    stream(...call) {
      warn(
        `only ${first.api} is followed, one of ${replicas.length} watchers: nodes that follow another are absent there`,
      );
      return first.transport.stream(...call);
    },
  };
}

interface Reply {
  readonly api: string;
  readonly response: UnaryResponse & { readonly message: Message };
}

/**
 * Takes the states out of a request for nodes: a replica would select by its own knowledge, by which most are absent.
 * Errors: BAD_OPTION for a revision.
 */
function takeStates(request: Message): readonly ApplyState[] {
  const isNodes = isMessage(request, ListNodesRequestSchema);
  if (!isNodes && !isMessage(request, ListSubscribersRequestSchema)) return [];
  if (request.notAppliedRevision !== 0n) {
    throw new ProcessError("BAD_OPTION", "each watcher counts its own revisions: name one with --pod or --api");
  }
  return isNodes ? request.states.splice(0) : [];
}

/** Reads all pages of a list as one; of changes only one, whose size is their limit. */
async function readWhole<R extends Message>(
  ask: (request: R) => Promise<UnaryResponse>,
  request: R,
): Promise<Reply["response"]> {
  const response = await ask(request);
  const message: Message & { nextPageToken?: string } = response.message;
  if (isMessage(message, ListChangesResponseSchema)) return response;
  const rows = rowsOf(response.method.output, message);
  while ((message.nextPageToken ?? "") !== "") {
    const next: typeof message = (await ask({ ...request, pageToken: message.nextPageToken })).message;
    rows.push(...rowsOf(response.method.output, next));
    message.nextPageToken = next.nextPageToken ?? "";
  }
  return response;
}

/** Returns the array of a page's rows: its only list of messages. */
function rowsOf({ fields }: DescMessage, page: Message): unknown[] {
  const field = fields.find((one) => one.fieldKind === "list");
  return field === undefined ? [] : ((page as unknown as Record<string, unknown[]>)[field.localName] ?? []);
}

/** Messages that depend on the objects of the cluster only, which all replicas hold. */
const sameEverywhere: readonly DescMessage[] = [
  ListServicesResponseSchema,
  ListEndpointsResponseSchema,
  ListNodeEndpointsResponseSchema,
  ExplainResponseSchema,
];

function join(
  schema: DescMessage,
  replies: readonly Reply[],
  states: readonly ApplyState[],
  warn: (text: string) => void,
): Message {
  const [first, ...others] = replies;
  if (first === undefined) throw new Error("no reply");
  const all = <D extends DescMessage>(one: D) =>
    replies.flatMap(({ api, response: { message } }) => (isMessage(message, one) ? [{ api, message }] : []));
  const { message } = first.response;
  if (isMessage(message, ListNodesResponseSchema)) {
    const nodes = joinNodes(all(ListNodesResponseSchema).map((one) => one.message.nodes));
    message.nodes = nodes.filter(({ state }) => states.length === 0 || states.includes(state));
  } else if (isMessage(message, ListSubscribersResponseSchema)) {
    message.subscribers = all(ListSubscribersResponseSchema).flatMap((one) => one.message.subscribers);
  } else if (isMessage(message, ListChangesResponseSchema)) {
    message.changes = all(ListChangesResponseSchema)
      .flatMap(({ api, message: { changes } }) => changes.map((one) => ({ ...one, source: `${one.source} of ${api}` })))
      .sort((one, other) => storedMs(other) - storedMs(one));
  } else if (sameEverywhere.includes(schema)) {
    const plain = (one: Message): MessageShape<DescMessage> => Object.assign(structuredClone(one), { revision: 0n });
    for (const { api, response } of others) {
      if (equals(schema, plain(message), plain(response.message))) continue;
      warn(`${first.api} and ${api} answer differently, and this is ${first.api}'s answer: kpng status compares them`);
    }
  }
  return message;
}

function storedMs({ storedAt }: Change): number {
  return storedAt === undefined ? 0 : timestampMs(storedAt);
}

/** Joins the nodes of several replicas: each as the replica sees it that it follows, or as the first one. Pure. */
export function joinNodes(lists: readonly (readonly Node[])[]): Node[] {
  const nodes = new Map<string, Node>();
  for (const node of lists.flat()) {
    const known = nodes.get(node.name);
    if (known === undefined || known.state === ApplyState.ABSENT) nodes.set(node.name, node);
  }
  return [...nodes.values()];
}
