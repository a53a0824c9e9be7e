import { isIP } from "node:net";
import { isRecord } from "@kpng/model/is-record.ts";
import { wallClockMs } from "@kpng/process/wall-clock.ts";
import type { CollectionHandler, IncomingList } from "../reflector/collection-handler.ts";
import { rawMetadata } from "../request/raw-object.ts";
import type { WatchEvent } from "../request/watch-once.ts";
import type { ChangeQueue } from "./change-queue.ts";

/**
 * Last known CIDRs of all ServiceCIDR objects, which are ranges of cluster IPs. When one changes, the sink gets all
 * CIDRs as one sorted set.
 *
 * Source: networking.k8s.io/v1 ServiceCIDR.spec.cidrs.
 *
 * `kubeSource` makes it, as handler of a reflector of its own. Separate from `ObjectCache`, which passes on single
 * objects.
 */
export class ServiceCIDRCache implements CollectionHandler {
  readonly #queue: ChangeQueue;
  #cidrsByObject = new Map<string, readonly string[]>();

  constructor(queue: ChangeQueue) {
    this.#queue = queue;
  }

  beginList(): IncomingList {
    const listed = new Map<string, readonly string[]>();
    return {
      add: (object) => listed.set(rawMetadata(object)?.key ?? "", cidrsOf(object)),
      remove: (key) => listed.delete(key),
      complete: () => {
        this.#cidrsByObject = listed;
        this.#publish();
        return undefined;
      },
    };
  }

  apply(events: readonly WatchEvent[]): void {
    for (const event of events) {
      if (event.kind === "put") this.#cidrsByObject.set(event.key, cidrsOf(event.object));
      if (event.kind === "delete") this.#cidrsByObject.delete(event.key);
    }
    if (events.some((event) => event.kind !== "bookmark")) this.#publish();
  }

  #publish(): void {
    this.#queue.replace({ serviceCIDRs: [...new Set([...this.#cidrsByObject.values()].flat())].sort() }, wallClockMs());
  }
}

function cidrsOf(object: unknown): readonly string[] {
  const spec = isRecord(object) && isRecord(object.spec) ? object.spec : {};
  const cidrs: readonly unknown[] = Array.isArray(spec.cidrs) ? spec.cidrs : [];
  return cidrs.filter((cidr) => typeof cidr === "string").filter((cidr) => isIP(cidr.split("/")[0] ?? "") !== 0);
}
