import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import type { Position, PositionAnswer } from "@kpng/model/forward/position.ts";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { decodePosition, encodePosition } from "@kpng/model/wire/position-message.ts";
import { reasonOf } from "@kpng/process/log.ts";

/** Answer of the upstream watcher of a relay about its state. */
export interface UpstreamAnswer extends PositionAnswer {
  readonly instance: string;
  /** The upstream does not know whether its own state is current. */
  readonly isStale: boolean;
}

/**
 * Asks the upstream watcher of a relay for the position of its state, and whether it covers `needed`. Returns the
 * reason as a text if it does not answer within `limitMs`, and undefined if it does not know the call: an original
 * KPNG.
 *
 * `RelayCurrency` calls it. Separate from it, because this function has no state and only sends the request.
 */
export async function askUpstream(
  transport: Transport,
  needed: Position | undefined,
  limitMs: number,
  signal: AbortSignal,
): Promise<UpstreamAnswer | string | undefined> {
  try {
    const request = needed === undefined ? {} : { needed: encodePosition(needed) };
    const answer = await createClient(PositionService, transport).check(request, { signal, timeoutMs: limitMs });
    const { instance, covers, isStale } = answer;
    return { instance, covers, isStale, state: decodePosition(answer.state) };
  } catch (error) {
    if (ConnectError.from(error).code === Code.Unimplemented) return undefined;
    return reasonOf(error);
  }
}
