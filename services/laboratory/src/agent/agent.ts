import { createInterface } from "node:readline";
import { ask, askHttp, awaitName } from "./ask.ts";
import { openFlow, type RunningFlow } from "./flow.ts";
import { type RunningProbe, startProbe } from "./probe.ts";
import type { Question } from "./question.ts";
import { serve } from "./serve.ts";

// A process that stays in its namespace, serves as a pod does, and sends what it is told to:
// `node agent.ts NAME PORT,PORT… ADDRESS…`. Says "ready" once it serves; then reads `[number, Question]` a line and
// writes `[number, reply]` a line, in the order in which replies come.

const flows = new Map<number, RunningFlow>();
const probes = new Map<number, RunningProbe>();

async function reply(question: Question): Promise<unknown> {
  switch (question.kind) {
    case "ask":
      return ask(question);
    case "await":
      return awaitName(question);
    case "http":
      return askHttp(question);
    case "open":
      flows.set(question.id, await openFlow(question));
      return true;
    case "look":
      return flows.get(question.id)?.look();
    case "finish":
      return flows.get(question.id)?.finish();
    case "probe":
      probes.set(question.id, startProbe(question));
      return true;
    case "stop probe":
      return probes.get(question.id)?.stop();
    case "end":
      flows.get(question.id)?.end();
      return flows.delete(question.id);
  }
}

const [name = "", ports = "", ...addresses] = process.argv.slice(2);
await serve(name, addresses, ports.split(",").filter(Boolean).map(Number));
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  const [number, question]: [number, Question] = JSON.parse(line);
  void reply(question).then((value) => process.stdout.write(`${JSON.stringify([number, value])}\n`));
}
process.exit();
