import type { OpenFlow } from "../agent/agent-client.ts";
import type { ProbeTotals, Protocol } from "../agent/request.ts";
import type { State } from "../scenario/build.ts";
import { addressOf, describePacket, type Frontend, type Sender } from "../scenario/packet.ts";
import type { Family } from "../scenario/places.ts";
import type { TwoNodes } from "./two-nodes.ts";

/** Sender and destination of traffic over both protocols. */
export interface Way {
  readonly from: Sender;
  readonly to: Frontend;
  readonly port: number;
  /** Default: those of the network. */
  readonly family?: Family;
}

export interface TrafficOptions {
  /** Default: both. */
  readonly protocols?: readonly Protocol[];
  /** For slow guests: connections are opened less often, may take long, and may send SYNs again. Default false. */
  readonly toleratesDelay?: boolean;
  /**
   * Set where endpoints are removed: UDP clients without an answer send their datagram three times. kpng, like
   * kube-proxy, deletes the conntrack entries of a removed endpoint, and an answer still on its way is then no longer
   * translated, so the client ignores it. Default false.
   */
  readonly resendsDatagrams?: boolean;
}

/** Result of `Traffic.end`. */
interface TrafficReport {
  /** A line for each loss, change of endpoint, rejection or closed connection. */
  readonly wrong: readonly string[];
  /** Number of answered new connections and first datagrams. */
  readonly answeredProbes: number;
  /** Number of bytes and datagrams that the flows got back. */
  readonly answeredByFlows: number;
}

/**
 * Time limit for the answer to a new connection or datagram, in milliseconds. It is long because a program that waits for
 * a busy processor may answer late; a test takes this long only if something is lost.
 */
const probeTimeoutMs = 20_000;

/**
 * Traffic that changes of the node's rules must not affect: on each path a transfer over one TCP connection, datagrams
 * from one UDP port, and every 50 ms a new connection and a datagram from a new port.
 */
export class Traffic {
  readonly #flows: { readonly said: string; readonly flow: OpenFlow }[] = [];
  /** Functions that stop the probes. */
  readonly #probes: { readonly said: string; readonly stop: () => Promise<ProbeTotals> }[] = [];

  readonly #world: TwoNodes;
  readonly #options: TrafficOptions;
  #repeatedBefore = 0;

  private constructor(world: TwoNodes, options: TrafficOptions) {
    this.#world = world;
    this.#options = options;
  }

  /** Starts the traffic; resolves when every flow has got an answer. Errors: a flow without an answer. */
  static async start(
    world: TwoNodes,
    state: State,
    ways: readonly Way[],
    options: TrafficOptions = {},
  ): Promise<Traffic> {
    const traffic = new Traffic(world, options);
    const { protocols = ["tcp", "udp"] } = options;
    const starts = ways.flatMap((way) =>
      world.families
        .filter((family) => family === (way.family ?? family))
        .flatMap((family) => protocols.map((protocol) => traffic.#open(world, state, way, family, protocol))),
    );
    try {
      await Promise.all(starts);
    } catch (error) {
      await Promise.allSettled(starts);
      await traffic[Symbol.asyncDispose]();
      throw error;
    }
    traffic.#repeatedBefore = await traffic.#repeatedSyns();
    return traffic;
  }

  async #open(world: TwoNodes, state: State, way: Way, family: Family, protocol: Protocol): Promise<void> {
    const agent = world.agentOf(way.from);
    const from = way.from.kind === "outside" ? way.from.address[family] : undefined;
    const target = { protocol, address: addressOf(state, way.to, family), port: way.port, from };
    const said = `${family} ${protocol} ${describePacket(way)}`;
    const flow = await agent.openFlow({ ...target, answerMs: world.answerMs + 2_000 });
    this.#flows.push({ said, flow });
    if (flow.name === undefined) throw new Error(`${said}: no answer at the start`);
    const patience =
      this.#options.toleratesDelay === true
        ? { everyMs: 200, timeoutMs: 60_000 }
        : { timeoutMs: Math.max(world.answerMs, probeTimeoutMs) };
    const sendings = this.#options.resendsDatagrams === true ? 3 : 1;
    this.#probes.push({ said, stop: await agent.startProbe({ ...target, ...patience, sendings }) });
  }

  /** Waits until every flow got another answer from the same endpoint; returns a line for each that did not. */
  async look(): Promise<readonly string[]> {
    const lines = await Promise.all(
      this.#flows.map(async ({ flow, said }) => {
        const { name } = flow;
        await flow.look();
        const deadlineMs = performance.now() + this.#world.answerMs + 2_000;
        for (;;) {
          const state = await flow.look();
          if (state.ended !== undefined) return [`${said}: ended: ${state.ended}`];
          if (state.answered > 0) return state.name === name ? [] : [`${said}: went to ${name}, now to ${state.name}`];
          if (performance.now() > deadlineMs) return [`${said}: no answer any more`];
        }
      }),
    );
    return lines.flat();
  }

  /** Stops the traffic and returns the report. */
  async end(): Promise<TrafficReport> {
    const wrong: string[] = [...(await this.look())];
    let answeredProbes = 0;
    let answeredByFlows = 0;
    const finished = this.#flows.map(async ({ flow, said }) => {
      const { sent, answered, ended } = await flow.finish();
      answeredByFlows += answered;
      if (answered !== sent) wrong.push(`${said}: sent ${sent}, of which ${answered} came back`);
      if (ended !== undefined) wrong.push(`${said}: ended: ${ended}`);
      await flow.close();
    });
    const stopped = this.#probes.map(async ({ stop, said }) => {
      const { answered, failures } = await stop();
      answeredProbes += answered;
      if (failures.length > 0) {
        wrong.push(
          `${said}: of ${answered + failures.length} new ones ${failures.length} failed: ${failures.slice(0, 5).join("; ")}`,
        );
      }
    });
    await Promise.all([...finished, ...stopped]);
    const repeated = (await this.#repeatedSyns()) - this.#repeatedBefore;
    if (repeated > 0 && this.#options.toleratesDelay !== true) wrong.push(`${repeated} SYNs had to be sent again`);
    return { wrong, answeredProbes, answeredByFlows };
  }

  /** Ends the traffic that still runs, as after a failure. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#flows.map(({ flow }) => flow.close()), ...this.#probes.map(({ stop }) => stop())]);
  }

  /**
   * Returns the number of retransmitted SYNs of pod a and of the client outside: connections that were only delayed by
   * a moment without rules. SYNs of n1 do not count, because markers connect from there before rules exist.
   */
  async #repeatedSyns(): Promise<number> {
    const counts = ["a", "client"].map(async (name) => {
      const lines = (await this.#world.laboratory.run(name, ["cat", "/proc/net/netstat"])).split("\n");
      const [names = [], values = []] = lines
        .filter((line) => line.startsWith("TcpExt:"))
        .map((line) => line.split(" "));
      return Number(values[names.indexOf("TCPSynRetrans")] ?? Number.NaN);
    });
    return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
  }
}
