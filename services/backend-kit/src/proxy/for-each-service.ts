import { setImmediate as nextTurn } from "node:timers/promises";
import type { ServiceKey } from "@kpng/model/service.ts";

const servicesPerTurn = 100;

/**
 * Calls `act` for each Service, also for those that are added to `keys` in the meantime. The event loop gets a turn after
 * every 100 of them, so that health probes are answered during a full sync.
 */
export async function forEachService(keys: Iterable<ServiceKey>, act: (key: ServiceKey) => void): Promise<void> {
  let count = 0;
  for (const key of keys) {
    act(key);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
}
