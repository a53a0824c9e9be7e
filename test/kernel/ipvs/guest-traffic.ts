import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { State } from "../../scenario/manifest.ts";
import { addressOf, clusterIP, loadBalancerIP, outside, pod } from "../../scenario/packet.ts";
import { answerMs } from "../check-packets.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import type { ShortConnections } from "./short-connections.ts";

const program = fileURLToPath(new URL("./short-connections.ts", import.meta.url));

/** Clients of the Service "web" on port 80, which has the endpoints b and c. */
const clients = [
  { namespace: "a", from: pod("a"), to: clusterIP("web"), family: "v4" },
  { namespace: "client", from: outside, to: loadBalancerIP("web"), family: "v6" },
] as const;

interface Transfer {
  readonly agent: AgentClient;
  readonly id: number;
  readonly said: string;
}

/** Two transfers of each client, one with each endpoint. They go on until they are finished. */
export class Transfers {
  static #nextId = 800_001;
  readonly #open: readonly Transfer[];

  private constructor(open: readonly Transfer[]) {
    this.#open = open;
  }

  /** Starts the transfers, as soon as the clients are served. Errors: an endpoint does not answer. */
  static async start(world: TwoNodes, state: State): Promise<Transfers> {
    const open: Transfer[] = [];
    for (const { from, to, family } of clients) {
      const agent = world.agentOf(from);
      const target = { address: addressOf(state, to, family), port: 80 };
      const said = `transfer ${family} from ${agent.name} to ${to.kind}`;
      // The marker answers the node before the addresses are installed, which other clients need.
      const isServed = await agent.send({ kind: "await", ...target, name: "b", timeoutMs: answerMs });
      const answers: (string | undefined)[] = [];
      // Other connections take turns, too, so the second transfer may get the endpoint of the first.
      while (isServed && new Set(answers).size < 2 && answers.length < 32) {
        const id = Transfers.#nextId++;
        await agent.send({ kind: "open", id, protocol: "tcp", ...target });
        const name = await nameOf(agent, id);
        if (name === undefined || answers.includes(name)) await agent.send({ kind: "end", id });
        else open.push({ agent, id, said });
        answers.push(name);
      }
      if (!answers.includes("b") || !answers.includes("c")) throw new Error(`${said}: answers of ${answers.join()}`);
    }
    return new Transfers(open);
  }

  /** Finishes and closes the transfers; returns a line for each that lost data or was closed. */
  async finish(): Promise<readonly string[]> {
    const lines = this.#open.map(async ({ agent, id, said }) => {
      const { sent, answered, ended } = await agent.send({ kind: "finish", id });
      await agent.send({ kind: "end", id });
      if (sent > 0 && sent === answered && ended === undefined) return [];
      return [`${said}: sent ${sent} bytes, of which ${answered} came back; ${ended ?? "open"}`];
    });
    return (await Promise.all(lines)).flat();
  }
}

/** Waits for the first answer of a flow, which has the name of its endpoint. */
async function nameOf(agent: AgentClient, id: number): Promise<string | undefined> {
  const deadlineMs = performance.now() + answerMs;
  for (;;) {
    const { name, ended } = await agent.send({ kind: "look", id });
    if (name !== undefined || ended !== undefined || performance.now() > deadlineMs) return name;
  }
}

/** Short connections of all clients, each in a process of its own. */
export class Connections {
  readonly #clients: readonly ShortClient[];

  /** `pauseMs` is the time between two connections of a client; without it they take what is left of the CPU. */
  constructor(world: TwoNodes, state: State, pauseMs = 0) {
    this.#clients = clients.map(({ namespace, to, family }) => {
      const command = [process.execPath, program, addressOf(state, to, family), "80", String(pauseMs)];
      // A guest has one CPU, which the backend under test needs, too.
      return new ShortClient(world.laboratory.start(namespace, ["nice", "-n", "5", ...command]));
    });
  }

  /** Number of answered connections, in hundreds of each client. */
  get count(): number {
    return this.#clients.reduce((sum, { count }) => sum + count, 0);
  }

  /** Waits until so many connections are answered, or a client has given up. */
  async reached(count: number): Promise<void> {
    while (this.count < count && !this.#clients.some(({ hasEnded }) => hasEnded)) await sleep(100);
  }

  /** Ends the connections and returns their totals. Errors: a client has ended by itself. */
  async end(): Promise<ShortConnections> {
    const totals = await Promise.all(this.#clients.map((client) => client.end()));
    return {
      answered: totals.reduce((sum, { answered }) => sum + answered, 0),
      failures: totals.flatMap(({ failures }) => failures),
      elapsedMs: Math.max(...totals.map(({ elapsedMs }) => elapsedMs)),
    };
  }
}

/** A process of `short-connections.ts`. */
class ShortClient {
  readonly #child: ChildProcess;
  readonly #closed: Promise<unknown>;
  #totals: ShortConnections | undefined;
  #errors = "";
  count = 0;

  constructor(child: ChildProcess) {
    this.#child = child;
    this.#closed = once(child, "close");
    if (child.stdout === null) throw new Error("no pipe");
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (line.startsWith("{")) this.#totals = JSON.parse(line) as ShortConnections;
      else this.count = Number(line);
    });
    child.stderr?.on("data", (data) => {
      this.#errors += String(data);
    });
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  async end(): Promise<ShortConnections> {
    this.#child.stdin?.end();
    await this.#closed;
    if (this.#totals === undefined) throw new Error(`the client of short connections ended early: ${this.#errors}`);
    return this.#totals;
  }
}
