import type { Update } from "../scenario/scenario.ts";
import type { Backend } from "./backends.ts";
import { checkFlows, openFlows } from "./check-flows.ts";
import { checkPackets } from "./check-packets.ts";
import type { TwoNodes } from "./laboratory/two-nodes.ts";

/** The part of a backend that an update uses. */
export type UpdatedBackend = Pick<Backend, "proxy" | "apply" | "restart" | "loseRules">;

/** Applies an update to a running backend and returns a line for each unexpected result. */
export async function checkUpdate(
  world: TwoNodes,
  backend: UpdatedBackend,
  update: Update,
): Promise<readonly string[]> {
  await backend.apply(update.before.state);
  const wrongBefore = await checkPackets(world, update.before, backend.proxy);
  if (wrongBefore.length > 0) return wrongBefore.map((line) => `before: ${line}`);
  const flows = await openFlows(world, update);
  try {
    await change(backend, update);
    return [...(await checkFlows(flows, backend.proxy)), ...(await checkPackets(world, update.after, backend.proxy))];
  } finally {
    await Promise.all(flows.map((flow) => flow.end()));
  }
}

async function change(backend: UpdatedBackend, { event, after }: Update): Promise<void> {
  if (event === undefined) return backend.apply(after.state);
  if (event === "rules lost") await backend.loseRules();
  await backend.restart();
}
