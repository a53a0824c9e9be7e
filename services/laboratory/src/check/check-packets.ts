import { setTimeout as sleep } from "node:timers/promises";
import type { Answer } from "../agent/request.ts";
import type { ProxyProfile } from "../scenario/deviations.ts";
import {
  type ConcretePacket,
  concretePackets,
  describeOutcome,
  describePacket,
  masqueradeAddresses,
  n1,
  neighbour,
  nodeAddress,
  outside,
  type Packet,
  senderAddress,
} from "../scenario/packet.ts";
import { crowdAddresses, hosts } from "../scenario/places.ts";
import type { HealthCheck, Scenario } from "../scenario/scenario.ts";
import { askSctp, whyNoSctp } from "./sctp.ts";
import type { TwoNodes } from "./two-nodes.ts";

/** Time to wait for an answer that must not arrive. */
const silenceMs = 300;

/** Sends all packets of a scenario at once, and returns a line for each with an unexpected result for the proxy. */
export async function checkPackets(
  world: TwoNodes,
  scenario: Scenario,
  profile: ProxyProfile,
): Promise<readonly string[]> {
  const packets = scenario.packets
    .flatMap((packet) => concretePackets(scenario, packet, profile))
    .filter(({ family }) => world.families.includes(family))
    .filter(({ protocol }) => protocol !== "sctp" || whyNoSctp() === undefined)
    // The raw sockets of the SCTP client fail in many ways where no rule applies.
    .filter(({ protocol, packet }) => protocol !== "sctp" || !("verdict" in packet) || packet.verdict !== "untouched");
  const checks = packets.map(async (concrete) => {
    const { packet, family, protocol, address } = concrete;
    const wrong =
      "goesTo" in packet ? await checkAnswers(world, concrete, packet) : await checkVerdict(world, concrete);
    const said = `${family} ${protocol} ${describePacket(packet)} (${address})`;
    if (wrong === undefined) return [];
    const { deviations } = concrete;
    const hint = deviations.length === 0 ? "" : ` (deviations about this packet: ${deviations.join(", ")})`;
    return [`${said}: should be ${describeOutcome(packet, concrete.reason)}; ${wrong}${hint}`];
  });
  const health = (scenario.healthChecks ?? [])
    .filter(({ isBehindFirewall }) => {
      return isBehindFirewall !== true || profile.reasonFor("health-port-not-opened") === undefined;
    })
    .map((check) => checkHealth(world, check));
  return (await Promise.all([...checks, ...health])).flat();
}

/** Returns the answers of each client: of the sender, or of several clients if the packet needs a crowd. */
async function askAll(
  world: TwoNodes,
  concrete: ConcretePacket,
  timeoutMs: number,
): Promise<readonly (readonly Answer[])[]> {
  const { packet, protocol, family, address, port } = concrete;
  const count = "goesTo" in packet ? packet.goesTo.length : 1;
  const isSticky = "goesTo" in packet && packet.isSticky === true;
  const clients = isSticky && packet.from === outside ? crowdAddresses.map((pair) => pair[family]) : [undefined];
  const agent = world.agentOf(packet.from);
  if (protocol === "sctp") {
    const from = packet.from.kind === "outside" ? packet.from.address[family] : undefined;
    return [await askSctp(world.laboratory, agent.name, { address, port, from, timeoutMs, wanted: count })];
  }
  const asks = clients.map(async (client) => {
    const own = packet.from.kind === "outside" ? packet.from.address[family] : undefined;
    const from = client ?? own;
    const amount = isSticky
      ? // One after the other: of two simultaneous packets, the second is routed before the kernel stores the first.
        { atOnce: 1, atMost: 4, wanted: 2 }
      : // 64 packets miss one of two endpoints by accident once in 10^19 runs, and one of four once in 10^8.
        { atOnce: 2 * count + 1, atMost: 64, wanted: count };
    return agent.call("ask", { protocol, address, port, from, timeoutMs, ...amount });
  });
  return Promise.all(asks);
}

async function checkAnswers(
  world: TwoNodes,
  concrete: ConcretePacket,
  packet: Extract<Packet, { goesTo: unknown }>,
): Promise<string | undefined> {
  const byClient = await askAll(world, concrete, world.answerMs);
  const answers = byClient.flat();
  const bad = answers.find((answer) => answer.kind !== "answer");
  if (bad !== undefined) return `came ${describeAnswer(bad)}`;
  const names = namesOf(answers);
  // One client with affinity reaches one endpoint; only many clients reach both.
  const isOneSticky = packet.isSticky === true && byClient.length === 1;
  const isRight = isOneSticky
    ? names.every((name) => packet.goesTo.some((host) => host === name))
    : names.join() === [...packet.goesTo].sort().join();
  if (!isRight) return `answered ${names.join(" and ")}`;
  if (packet.isSticky === true && byClient.some((list) => namesOf(list).length > 1))
    return "one client reached several endpoints";
  const wrong = answers.find((answer) => !isAsSaid(answer, concrete, packet));
  if (wrong === undefined && packet.forgottenAfterSeconds !== undefined) {
    // Only time passes here, so there is no event to wait for. The kernel counts in seconds, approximately.
    await sleep(packet.forgottenAfterSeconds * 1_000 + 500);
    const later = await askAll(world, concrete, world.answerMs);
    const hasMoved = later.some((list, at) => namesOf(list).join() !== namesOf(byClient[at] ?? []).join());
    return hasMoved
      ? undefined
      : `after ${packet.forgottenAfterSeconds} s all ${later.length} clients go where they went`;
  }
  return wrong === undefined ? undefined : `came ${describeAnswer(wrong)}`;
}

function isAsSaid(answer: Answer, concrete: ConcretePacket, packet: Extract<Packet, { goesTo: unknown }>): boolean {
  if (answer.kind !== "answer" || answer.port !== concrete.targetPort) return false;
  const isMasqueraded = masqueradeAddresses(concrete.family).includes(answer.from);
  if (packet.source === undefined) return true;
  if (packet.source === "masqueraded") return isMasqueraded;
  // A node has several addresses, and its routes determine which one this packet has.
  if (packet.from.kind === "node") return isMasqueraded;
  return packet.isSticky === true || answer.from === senderAddress(packet.from, concrete.family)
    ? !isMasqueraded
    : false;
}

async function checkVerdict(world: TwoNodes, concrete: ConcretePacket): Promise<string | undefined> {
  const { packet } = concrete;
  const verdict = "verdict" in packet ? packet.verdict : "untouched";
  const isOfNode = packet.to.kind === "address" && packet.to.isOfNode;
  const expected = verdict === "untouched" ? (isOfNode ? "refused" : "silent") : verdict;
  if (expected === "reset" && concrete.protocol === "tcp") {
    const answers = (await askAll(world, concrete, world.answerMs)).flat();
    const wrong = answers.find((answer) => answer.kind !== "error" || answer.code !== "ECONNRESET");
    return wrong === undefined ? undefined : `came ${describeAnswer(wrong)}`;
  }
  const isSilent = expected === "silent" || expected === "reset";
  const mayBeSilent = isSilent || expected === "unanswered";
  const isRight = ({ kind }: Answer): boolean =>
    (mayBeSilent && kind === "silent") || (!isSilent && kind === "refused");
  const answers = (await askAll(world, concrete, mayBeSilent ? silenceMs : world.answerMs)).flat();
  const wrong = answers.find((answer) => !isRight(answer));
  return wrong === undefined ? undefined : `came ${describeAnswer(wrong)}`;
}

/**
 * Checks a health-check port. The server changes shortly after the rules, so the check waits.
 *
 * The neighbour asks, not the client outside, whose repeated SYNs `Traffic` counts: the kernel drops a SYN that arrives
 * while the listener closes (8 of 3 000 closed listeners), and no rule has a part in that.
 */
async function checkHealth(world: TwoNodes, { port, answer }: HealthCheck): Promise<readonly string[]> {
  const deadlineMs = performance.now() + world.answerMs;
  for (;;) {
    const wrong: string[] = [];
    for (const family of world.families) {
      for (const from of [neighbour, n1]) {
        const address = hosts.n1[family];
        const request = { address, port, timeoutMs: world.answerMs };
        const { status, body } = await world.agentOf(from).call("askHttp", request);
        const localEndpoints = `"localEndpoints":${answer?.localEndpoints}`;
        const isRight =
          answer === undefined
            ? status === 0
            : status === answer.status && body.replaceAll(/\s/g, "").includes(localEndpoints);
        if (isRight) continue;
        const wanted =
          answer === undefined ? "no answer" : `status ${answer.status} and JSON with ${localEndpoints} in the body`;
        const came = status === 0 ? body : `status ${status} and the body ${JSON.stringify(body)}`;
        wrong.push(
          `${family} health check ${describePacket({ from, to: nodeAddress, port })}: should be ${wanted}; came ${came}`,
        );
      }
    }
    if (wrong.length === 0 || performance.now() > deadlineMs) return wrong;
  }
}

function namesOf(answers: readonly Answer[]): readonly string[] {
  return [...new Set(answers.map((answer) => (answer.kind === "answer" ? answer.name : answer.kind)))].sort();
}

function describeAnswer(answer: Answer): string {
  if (answer.kind === "answer") return `an answer of ${answer.name} port ${answer.port} to ${answer.from}`;
  return answer.kind === "error" ? `error ${answer.code}` : answer.kind;
}
