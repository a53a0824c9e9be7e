import { setTimeout as sleep } from "node:timers/promises";
import type { OpenFlow } from "../agent/agent-client.ts";
import type { FlowState } from "../agent/request.ts";
import type { ProxyProfile } from "../scenario/deviations.ts";
import { addressOf, describePacket } from "../scenario/packet.ts";
import type { Family } from "../scenario/places.ts";
import type { Flow, Scenario, Update } from "../scenario/scenario.ts";
import { checkPackets } from "./check-packets.ts";
import type { CommandProxy } from "./command-proxy.ts";
import { describeNode } from "./describe-node.ts";
import type { TwoNodes } from "./two-nodes.ts";

/** Flow of an update that runs in the laboratory. */
interface RunningFlow {
  readonly flow: Flow;
  readonly family: Family;
  readonly open: OpenFlow;
}

/**
 * Number of flows of each kind and family. A proxy that deletes the conntrack entries of a UDP flow by mistake is noticed
 * only if the flow then comes to another endpoint, by chance.
 */
const flowCount = ({ protocol }: Flow): number => (protocol === "udp" ? 4 : 1);

/** Starts the flows of an update in its first state; resolves when each has its expected answer. */
async function openFlows(world: TwoNodes, { before, flows }: Update): Promise<readonly RunningFlow[]> {
  const all = flows.flatMap((flow) =>
    world.families.flatMap((family) => Array.from({ length: flowCount(flow) }, () => ({ flow, family }))),
  );
  return Promise.all(all.map(({ flow, family }) => openFlow(world, before, flow, family)));
}

async function openFlow(world: TwoNodes, before: Scenario, flow: Flow, family: Family): Promise<RunningFlow> {
  const { from, to, protocol, port } = flow;
  const isServed = before.packets.some((packet) => "goesTo" in packet);
  const open = await world.agentOf(from).openFlow({
    ...{ protocol, address: addressOf(before.state, to, family), port },
    ...{ from: from.kind === "outside" ? from.address[family] : undefined, answerMs: isServed ? world.answerMs : 0 },
  });
  return { flow, family, open };
}

/** Returns a line for each flow with an unexpected result. Waits some seconds for expected answers. */
async function checkFlows(
  world: TwoNodes,
  flows: readonly RunningFlow[],
  profile: ProxyProfile,
): Promise<readonly string[]> {
  const lines = await Promise.all(
    flows.map(async ({ flow, family, open }) => {
      const deviation = profile.pick(flow.deviations, flow.protocol);
      const becomes = deviation?.value ?? flow.becomes;
      const wrong = await untilRight(open, becomes, world.answerMs);
      const because = deviation === undefined ? "" : ` (because ${deviation.reason})`;
      return wrong === undefined ? [] : [`${family} ${flow.protocol} flow ${describePacket(flow)}: ${wrong}${because}`];
    }),
  );
  return lines.flat();
}

async function untilRight(open: OpenFlow, becomes: Flow["becomes"], limitMs: number): Promise<string | undefined> {
  const deadlineMs = performance.now() + limitMs;
  // Answers that were in flight at the time of the change do not count.
  await open.look();
  for (;;) {
    await sleep(100);
    const wrong = wrongIn(open.name, becomes, await open.look());
    if (wrong === undefined || performance.now() > deadlineMs) return wrong;
  }
}

function wrongIn(name: string | undefined, becomes: Flow["becomes"], state: FlowState): string | undefined {
  const said = `${state.answered} answers in 100 ms, the last of ${state.name}${state.ended ? `, ${state.ended}` : ""}`;
  if (becomes === "gets no answer") return state.answered === 0 ? undefined : `still gets ${said}`;
  if (state.answered === 0) return `was answered by ${name}, now ${said}`;
  if (becomes === "goes on") return state.name === name ? undefined : `was answered by ${name}, now ${said}`;
  const { movesTo } = becomes;
  return movesTo.some((host) => host === state.name) ? undefined : `should move to ${movesTo.join(" or ")}: ${said}`;
}

/** The part of a proxy that an update uses. */
type UpdatedProxy = Pick<CommandProxy, "profile" | "apply" | "stop" | "restart" | "loseRules" | "word">;

/** Applies an update to a proxy that serves its first state, and returns a line for each unexpected result. */
export async function checkUpdate(world: TwoNodes, proxy: UpdatedProxy, update: Update): Promise<readonly string[]> {
  const wrongBefore = await checkPackets(world, update.before, proxy.profile);
  if (wrongBefore.length > 0) return wrongBefore.map((line) => `before: ${line}`);
  const flows = await openFlows(world, update);
  try {
    await change(world, proxy, update);
    const wrongFlows = await checkFlows(world, flows, proxy.profile);
    return [...wrongFlows, ...(await checkPackets(world, update.after, proxy.profile))];
  } finally {
    await Promise.all(flows.map(({ open }) => open.close()));
  }
}

async function change(world: TwoNodes, proxy: UpdatedProxy, { event, after }: Update): Promise<void> {
  if (event === undefined) return proxy.apply(after.state);
  if (event === "rules lost") {
    // A running proxy might repair its rules before they are read, and one that ends cleanly might remove them.
    await proxy.stop("SIGKILL");
    const before = await describeNode(world, proxy.word("bpf"));
    await proxy.loseRules();
    const now = await describeNode(world, proxy.word("bpf"));
    if (now.join() === before.join()) throw new Error("the command of --lose-rules removes nothing from the node");
  }
  await proxy.restart();
}
