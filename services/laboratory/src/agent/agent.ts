import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { ask, askHttp, awaitName } from "./ask.ts";
import { type Flow, openFlow, startProbe } from "./flow.ts";
import type { FlowTarget, ProbeTarget, ProbeTotals } from "./request.ts";

// The agent: the program that `AgentClient.start` runs in a network namespace of a laboratory. It answers connections
// as a pod would, and sends packets on request. It keeps running, because starting a process for each packet would take
// longer than sending the packet.
//
// Usage: `node agent.ts NAME PORT,PORT… ADDRESS…`. It prints "ready" when it listens, then reads `[number, name of a
// request, argument]` and writes `[number, reply]`, one per line, as replies become ready.

const flows = new Map<number, Flow>();
const probes = new Map<number, () => Promise<ProbeTotals>>();
let lastId = 0;

const requests = {
  ask,
  askHttp,
  awaitName,
  openFlow: async (target: FlowTarget) => {
    const flow = await openFlow(target);
    lastId += 1;
    flows.set(lastId, flow);
    return { id: lastId, name: flow.name };
  },
  look: (id: number) => flows.get(id)?.look() ?? { answered: 0, name: undefined, ended: "closed before" },
  finish: (id: number) => flows.get(id)?.finish() ?? { sent: 0, answered: 0, ended: "closed before" },
  close: (id: number) => {
    flows.get(id)?.close();
    return flows.delete(id);
  },
  startProbe: (target: ProbeTarget) => {
    lastId += 1;
    probes.set(lastId, startProbe(target));
    return lastId;
  },
  stopProbe: (id: number) => probes.get(id)?.() ?? { answered: 0, failures: [] },
};

/** What an agent does on request, by name; each takes one argument. */
export type Requests = typeof requests;

/**
 * Answers on a port of an address, over TCP and UDP, with one line of JSON that contains `name`, the port and the client's
 * source address, for example `{"name":"a","port":8080,"from":"10.1.1.12"}`. On a TCP connection it then echoes data.
 *
 * One socket per address, because a wildcard socket would answer datagrams from the address that the route prefers.
 */
async function serve(name: string, address: string, port: number): Promise<void> {
  const server = createServer({ noDelay: true }, (socket) => {
    // Clients reset the connection as soon as they have their answer.
    socket.on("error", () => undefined);
    socket.write(`${JSON.stringify({ name, port, from: socket.remoteAddress })}\n`);
    socket.on("data", (data) => socket.write(data));
  });
  await once(server.listen({ port, host: address, backlog: 1_024 }), "listening");
  const datagrams = createSocket(address.includes(":") ? "udp6" : "udp4");
  datagrams.on("error", () => undefined);
  datagrams.on("message", (_message, from) => {
    datagrams.send(JSON.stringify({ name, port, from: from.address }), from.port, from.address);
  });
  await once(datagrams.bind(port, address), "listening");
}

const [name = "", ports = "", ...addresses] = process.argv.slice(2);
const numbers = ports.split(",").filter(Boolean).map(Number);
await Promise.all(addresses.flatMap((address) => numbers.map((port) => serve(name, address, port))));
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  const [number, kind, argument]: [number, keyof Requests, unknown] = JSON.parse(line);
  const request = requests[kind] as (argument: unknown) => unknown;
  // A request that fails ends the agent, and `AgentClient` then rejects all open requests with the agent's stderr.
  void (async () => process.stdout.write(`${JSON.stringify([number, await request(argument)])}\n`))();
}
process.exit();
