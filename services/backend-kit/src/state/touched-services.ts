import type { ViewChange } from "@kpng/model/node-view.ts";
import type { ServiceKey } from "@kpng/model/service.ts";

/**
 * Returns the keys of the Services that changes put, delete, or change the endpoints of. `serveTask`, `AfterCommit` and
 * `PendingUpdate` share it, to limit their work to these Services.
 */
export function touchedServices(changes: readonly ViewChange[]): ReadonlySet<ServiceKey> {
  const keys = new Set<ServiceKey>();
  for (const change of changes) {
    switch (change.kind) {
      case "put-service":
      case "delete-service":
        keys.add(change.key);
        break;
      case "put-endpoint":
      case "delete-endpoint":
        keys.add(change.service);
        break;
      default:
        break;
    }
  }
  return keys;
}
