import type { ViewChange } from "@kpng/model/node-view.ts";
import type { ServiceKey, UnknownPort } from "@kpng/model/service.ts";
import type { Log } from "@kpng/process/log.ts";

/**
 * Says which ports of Services a newer watcher gives a protocol that this version does not know, which nothing serves
 * here: each once, and again only after it was gone.
 *
 * *Bound:* the Services of the view that have such ports.
 */
export class UnknownPorts {
  readonly #log: Log;
  readonly #told = new Map<ServiceKey, ReadonlySet<string>>();

  constructor(log: Log) {
    this.#log = log;
  }

  tell(changes: readonly ViewChange[]): void {
    for (const change of changes) {
      if (change.kind === "delete-service") this.#told.delete(change.key);
      if (change.kind === "put-service") this.#tellService(change.key, change.item.service.unknownPorts ?? []);
    }
  }

  #tellService(service: ServiceKey, ports: readonly UnknownPort[]): void {
    const before = this.#told.get(service);
    const now = new Set<string>();
    for (const { name, port, protocol } of ports) {
      const key = `${name} ${port} ${protocol}`;
      now.add(key);
      if (before?.has(key) === true) continue;
      this.#log.error("port of a protocol that this version does not know", {
        service,
        name,
        port,
        protocol,
      });
    }
    if (now.size === 0) this.#told.delete(service);
    else this.#told.set(service, now);
  }
}
