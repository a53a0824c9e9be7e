import { view } from "@kpng/model/testing/views.ts";
import type { SyncUpdate } from "../types/sync-update.ts";

/** Returns a partial update of an empty view, with only the fields that a test is about. */
export function syncUpdate(parts: Partial<SyncUpdate> = {}): SyncUpdate {
  return {
    view: view([]),
    touched: new Set(),
    counts: { services: 0, endpoints: 0 },
    isFirst: false,
    revision: 1n,
    instance: "run",
    mode: "partial",
    fullReason: "",
    ...parts,
  };
}
