import { createInterface } from "node:readline";
import type { AgentRequest } from "./request.ts";
import { serve } from "./serve.ts";
import { ask, askHttp, awaitName, openFlow, type RunningFlow, type RunningProbe, startProbe } from "./traffic.ts";

// The agent: the program that `AgentClient.start` runs in a network namespace of a laboratory. It answers connections
// as a pod would, and sends packets on request. It keeps running, because starting a process for each packet would take
// longer than sending the packet.
//
// Usage: `node agent.ts NAME PORT,PORT… ADDRESS…`. It prints "ready" when it listens, then reads `[number,
// AgentRequest]` and writes `[number, reply]`, one per line, as replies become ready.

const flows = new Map<number, RunningFlow>();
const probes = new Map<number, RunningProbe>();

async function reply(request: AgentRequest): Promise<unknown> {
  switch (request.kind) {
    case "ask":
      return ask(request);
    case "await":
      return awaitName(request);
    case "http":
      return askHttp(request);
    case "open":
      flows.set(request.id, await openFlow(request));
      return true;
    case "look":
      return flows.get(request.id)?.look();
    case "finish":
      return flows.get(request.id)?.finish();
    case "probe":
      probes.set(request.id, startProbe(request));
      return true;
    case "stop probe":
      return probes.get(request.id)?.stop();
    case "end":
      flows.get(request.id)?.end();
      return flows.delete(request.id);
  }
}

const [name = "", ports = "", ...addresses] = process.argv.slice(2);
await serve(name, addresses, ports.split(",").filter(Boolean).map(Number));
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  const [number, request]: [number, AgentRequest] = JSON.parse(line);
  // A request that fails ends the agent, and `AgentClient` then rejects all open requests with the agent's stderr.
  void reply(request).then((value) => process.stdout.write(`${JSON.stringify([number, value])}\n`));
}
process.exit();
