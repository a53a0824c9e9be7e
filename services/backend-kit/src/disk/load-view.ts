import { reasonOf } from "@kpng/process/log.ts";
import { ViewState } from "../state/view-state.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { readBootId } from "./boot-id.ts";
import { readViewFile, type ServiceFilter } from "./view-file.ts";
import { type ExpectedHeader, refuseHeader } from "./view-header.ts";
import { viewPath } from "./view-keeper.ts";

/** Options of {@link loadView}. */
export interface LoadOptions extends ExpectedHeader {
  readonly folder: string;
  /** Selects the Services to load. Default: all. */
  readonly only?: ServiceFilter | undefined;
  /** Default {@link readBootId}. */
  readonly bootId?: string | undefined;
}

/** Result of {@link loadView}. */
export type LoadedView =
  /** There is no file. */
  | { readonly kind: "none" }
  /** The file is invalid, too old, or for another node. */
  | { readonly kind: "refused"; readonly reason: string }
  | {
      readonly kind: "view";
      readonly update: ViewUpdate;
      /** When the view was last known to be current, in milliseconds since 1970. */
      readonly currentAtMs: number;
      /** True if the endpoints of this node were removed: after a reboot their pods are gone or have new addresses. */
      readonly isAfterReboot: boolean;
    };

/**
 * Reads the view that `ViewKeeper` saved for this node. Called at the start of a backend: by `startFromDisk` if no
 * watcher answers, and by `AfterCommit`, which needs the UDP frontends of the previous run. Separate from
 * `readViewFile`, which decodes every valid file: this function decides whether the view may be used.
 *
 * Never rejects. A file that must not be used stays where it is.
 */
export async function loadView(options: LoadOptions): Promise<LoadedView> {
  const { folder, nodeName, serviceProxyName, bootId = readBootId() } = options;
  try {
    const saved = await readViewFile(viewPath(folder, serviceProxyName), options.only);
    if (saved === undefined) return { kind: "none" };
    const reason = refuseHeader(saved.header, options);
    if (reason !== undefined) return { kind: "refused", reason };
    const isAfterReboot = saved.header.bootId !== bootId;
    const changes = saved.changes.filter(
      (change) => !isAfterReboot || change.kind !== "put-endpoint" || !change.endpoint.isOnNode,
    );
    const update = new ViewState(nodeName).apply({ isReset: true, changes, revision: 0n, instance: "" });
    return {
      kind: "view",
      update: { ...update, isFromDisk: true },
      currentAtMs: saved.header.currentAtMs,
      isAfterReboot,
    };
  } catch (error) {
    return { kind: "refused", reason: reasonOf(error) };
  }
}
