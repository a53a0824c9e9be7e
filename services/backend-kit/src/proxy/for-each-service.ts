import { setImmediate as nextTurn } from "node:timers/promises";
import type { ServiceKey } from "@kpng/model/service.ts";

const servicesPerTurn = 100;

/**
 * Calls `act` for each Service, also for one that `act` adds to `keys`. After every 100 Services, the event loop gets a
 * turn, so that health probes are answered during a full sync.
 */
export async function forEachService(keys: Iterable<ServiceKey>, act: (key: ServiceKey) => void): Promise<void> {
  let count = 0;
  for (const key of keys) {
    act(key);
    if (++count % servicesPerTurn === 0) await nextTurn();
  }
}
