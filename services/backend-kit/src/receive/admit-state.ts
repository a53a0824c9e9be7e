import { type CallOptions, createClient } from "@connectrpc/connect";
import type { Admission } from "@kpng/model/forward/forward-gate.ts";
import type { Position, PositionAnswer } from "@kpng/model/forward/position.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import type { SyncMark } from "@kpng/model/wire/decode-local.ts";
import { decodePosition, encodePosition } from "@kpng/model/wire/position-message.ts";
import { BackendError } from "../types/backend-error.ts";
import type { WatchOptions } from "./watch-options.ts";

/**
 * Passes the state of a sync marker through the gate (`ForwardGate`), if there is one, before the batch takes effect.
 * The verdict is "accept" if the state is older than the one before and is accepted nevertheless.
 *
 * `watchBatches` calls it for each batch. If the gate finds the state older, this function asks the watcher for its
 * position, because the watcher may be about to catch up. Separate from `ForwardGate` of package model, which has the
 * rule and knows no transport, because relays use it too.
 *
 * Errors: STATE_BEHIND if the gate refuses the state.
 */
export async function admitState(
  { position, instance }: SyncMark,
  { gate, transport }: WatchOptions,
  callOptions: CallOptions,
): Promise<Admission> {
  if (gate === undefined) return { verdict: "apply", applied: () => undefined };
  const { held } = gate;
  const check = (needed: Position): Promise<PositionAnswer | undefined> =>
    askPosition(needed, instance, createClient(PositionService, transport), callOptions);
  const admission = await gate.admit(position, check);
  if (admission.verdict !== "refuse") return admission;
  throw new BackendError(
    "STATE_BEHIND",
    `the watcher offers an older state: ${format(position)} after ${format(held)}`,
  );
}

/** How long a watcher may take to catch up before it counts as behind, in milliseconds. */
const answerLimitMs = 25_000;

/**
 * Asks the watcher for its position. Returns undefined if it does not answer, does not know the call, or is not the
 * watcher of the stream.
 */
async function askPosition(
  needed: Position,
  instance: string,
  client: ReturnType<typeof createClient<typeof PositionService>>,
  { signal }: CallOptions,
): Promise<PositionAnswer | undefined> {
  try {
    const limits = { ...(signal === undefined ? {} : { signal }), timeoutMs: answerLimitMs };
    const answer = await client.check({ needed: encodePosition(needed) }, limits);
    if (answer.instance !== instance) return undefined;
    return { state: decodePosition(answer.state), covers: answer.covers };
  } catch {
    return undefined;
  }
}

function format(position: Position | undefined): string {
  if (position === undefined) return "unknown";
  const { source, epoch, services, slices, nodes } = position;
  return `${source} epoch ${epoch}, services ${services}, slices ${slices}, nodes ${nodes}`;
}
