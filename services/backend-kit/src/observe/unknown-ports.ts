import type { ViewChange } from "@kpng/model/node-view.ts";
import type { ServiceKey, UnknownPort } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";

/**
 * Logs service ports with a protocol that this version does not know, because they are not served on this node. A newer
 * watcher may send them. Each is logged once, and again if it returns after it was removed. `backendTask` passes it the
 * changes of all streams. Separate, because it must remember from one stream to the next what was logged.
 *
 * *Bound:* the Services of the view that have such ports.
 */
export class UnknownPorts {
  readonly #log: Log;
  readonly #logged = new Map<ServiceKey, ReadonlySet<string>>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Logs ports that appear with these changes. */
  report(changes: readonly ViewChange[]): void {
    for (const change of changes) {
      if (change.kind === "delete-service") this.#logged.delete(change.key);
      if (change.kind === "put-service") this.#reportService(change.key, change.item.service.unknownPorts ?? []);
    }
  }

  #reportService(service: ServiceKey, ports: readonly UnknownPort[]): void {
    const before = this.#logged.get(service);
    const now = new Set<string>();
    for (const { name, port, protocol } of ports) {
      const key = `${name} ${port} ${protocol}`;
      now.add(key);
      if (before?.has(key) === true) continue;
      this.#log.error("service port not served: this version does not know its protocol", {
        service,
        name,
        port,
        protocol,
      });
    }
    if (now.size === 0) this.#logged.delete(service);
    else this.#logged.set(service, now);
  }
}
