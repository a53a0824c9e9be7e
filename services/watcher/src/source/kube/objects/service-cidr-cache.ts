import { isIP } from "node:net";
import { isRecord } from "@kpng/model/is-record.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { KindHandler, ListTaker } from "../reflector/collection-handler.ts";
import { rawMetadata } from "../request/raw-object.ts";
import type { WatchEvent } from "../request/watch-once.ts";
import type { ChangeQueue } from "./change-queue.ts";

/**
 * The CIDRs of all ServiceCIDR objects, given to the sink as one sorted set whenever one of them changes.
 *
 * Source: networking.k8s.io/v1 ServiceCIDR.spec.cidrs.
 */
export class HeldServiceCIDRs implements KindHandler {
  readonly #queue: ChangeQueue;
  #held = new Map<string, readonly string[]>();

  constructor(queue: ChangeQueue) {
    this.#queue = queue;
  }

  beginList(): ListTaker {
    const listed = new Map<string, readonly string[]>();
    return {
      add: (object) => listed.set(rawMetadata(object)?.key ?? "", cidrsOf(object)),
      complete: () => {
        this.#held = listed;
        this.#give();
        return { kind: "taken" };
      },
    };
  }

  apply(events: readonly WatchEvent[]): void {
    for (const event of events) {
      if (event.kind === "put") this.#held.set(event.key, cidrsOf(event.object));
      if (event.kind === "delete") this.#held.delete(event.key);
    }
    if (events.some((event) => event.kind !== "bookmark")) this.#give();
  }

  #give(): void {
    this.#queue.replace({ serviceCIDRs: [...new Set([...this.#held.values()].flat())].sort() }, wallClockMs());
  }
}

function cidrsOf(object: unknown): readonly string[] {
  const spec = isRecord(object) && isRecord(object.spec) ? object.spec : {};
  const cidrs: readonly unknown[] = Array.isArray(spec.cidrs) ? spec.cidrs : [];
  return cidrs.filter((cidr) => typeof cidr === "string").filter((cidr) => isIP(cidr.split("/")[0] ?? "") !== 0);
}
