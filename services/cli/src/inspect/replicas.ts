import { create, type DescMessage, equals, isMessage, type Message } from "@bufbuild/protobuf";
import { ConnectError, type Transport } from "@connectrpc/connect";
import type { Change } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import type { Node } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import {
  GetStatusResponseSchema,
  ListChangesRequestSchema,
  ListChangesResponseSchema,
  ListFindingsResponseSchema,
  ListNodesRequestSchema,
  ListNodesResponseSchema,
  ListSubscribersResponseSchema,
} from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { pageSize, type Replica, requestFailure } from "./client.ts";
import { terminalText, timestampMs } from "./print/text.ts";

/**
 * Returns a transport that queries all replicas, so that a command can query them as if they were one.
 *
 * | Answer | Joined |
 * |---|---|
 * | nodes | each node as seen by the replica that it follows; for the other replicas, the node is absent |
 * | streams, changes | from all replicas; the source of a change also names the replica |
 * | status, findings | from the first replica |
 * | all others (only about the cluster's objects) | from the first replica, with a warning if another one differs |
 *
 * If a replica does not answer, a warning is printed on standard error. A stream follows only the first replica.
 *
 * Errors: the first replica's error if none answers.
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
      // Do not let replicas filter by state: to each of them, most nodes are absent.
      const states = isMessage(request, ListNodesRequestSchema) ? request.states : [];
      const unselected = states.length === 0 ? request : { ...request, states: [], pageSize };
      const results = await Promise.allSettled(
        replicas.map(async ({ api, transport }) => {
          const ask = (pageToken: string) => {
            const page = pageToken === "" ? unselected : { ...unselected, pageToken };
            return transport.unary(method, signal, timeoutMs, header, page as typeof input, contextValues);
          };
          const response = await ask("");
          await readOtherPages(method.output, response.message, async (token) => (await ask(token)).message);
          return { api, response, message: response.message };
        }),
      );
      const [answer, ...others] = results.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
      const reasonAt = (index: number): unknown => (results[index] as PromiseRejectedResult | undefined)?.reason;
      if (answer === undefined) throw reasonAt(0);
      for (const [index, { api }] of replicas.entries()) {
        const reason = reasonAt(index);
        if (reason !== undefined) warn(`${api} does not answer: ${requestFailure(ConnectError.from(reason))}`);
      }
      join(method.output, [answer, ...others], states, warn);
      if (isMessage(answer.message, ListChangesResponseSchema) && isMessage(request, ListChangesRequestSchema))
        answer.message.changes.length = Math.min(
          answer.message.changes.length,
          request.pageSize || Number.POSITIVE_INFINITY,
        );
      return answer.response;
    },
    stream(...call) {
      warn(`only ${first.api} is followed, one of ${replicas.length}: nodes that follow another are absent there`);
      return first.transport.stream(...call);
    },
  };
}

/** Adds the rows of the other pages to the rows of the first page. For changes, only the first page was requested. */
async function readOtherPages(
  { fields }: DescMessage,
  first: Message & { nextPageToken?: string; readonly [rows: string]: unknown },
  read: (pageToken: string) => Promise<typeof first>,
): Promise<void> {
  const rows = fields.find(({ fieldKind }) => fieldKind === "list")?.localName ?? "";
  if (isMessage(first, ListChangesResponseSchema)) return;
  while ((first.nextPageToken ?? "") !== "") {
    const page = await read(String(first.nextPageToken));
    for (const row of page[rows] as unknown[]) (first[rows] as unknown[]).push(row);
    first.nextPageToken = page.nextPageToken ?? "";
  }
}

/** Joins all answers into the message of the first one. */
function join(
  schema: DescMessage,
  answers: readonly { readonly api: string; readonly message: Message }[],
  states: readonly ApplyState[],
  warn: (text: string) => void,
): void {
  const [first, ...others] = answers;
  if (first === undefined || isMessage(first.message, GetStatusResponseSchema)) return;
  const all = <D extends DescMessage>(one: D) =>
    answers.flatMap(({ api, message }) => (isMessage(message, one) ? [{ api, message }] : []));
  const { message } = first;
  if (isMessage(message, ListFindingsResponseSchema)) return;
  if (isMessage(message, ListNodesResponseSchema)) {
    const nodes = joinNodes(all(ListNodesResponseSchema).map((one) => one.message.nodes));
    message.nodes = nodes.filter(({ state }) => states.length === 0 || states.includes(state));
  } else if (isMessage(message, ListSubscribersResponseSchema)) {
    message.subscribers = all(ListSubscribersResponseSchema).flatMap((one) => one.message.subscribers);
  } else if (isMessage(message, ListChangesResponseSchema)) {
    message.changes = all(ListChangesResponseSchema)
      .flatMap(({ api, message: { changes } }) => changes.map((one) => ({ ...one, source: `${one.source} of ${api}` })))
      .sort((one, other) => storedMs(other) - storedMs(one));
  } else {
    // Each replica counts its own revisions.
    const plain = (one: Message): Message => Object.assign({ ...one }, { revision: 0n });
    const isSame = (other: Message): boolean => equals(schema, plain(message), plain(other));
    for (const { api } of others.filter((other) => !isSame(other.message))) {
      warn(`${first.api} and ${api} answer differently, and this is ${first.api}'s answer: kpng status compares them`);
    }
  }
}

function storedMs({ storedAt }: Change): number {
  return storedAt === undefined ? 0 : timestampMs(storedAt);
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
