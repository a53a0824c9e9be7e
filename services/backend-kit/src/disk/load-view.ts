import { reasonOf } from "@kpng/process/log.ts";
import { ViewState } from "../state/view-state.ts";
import type { ViewUpdate } from "../types/view-update.ts";
import { readBootId } from "./boot-id.ts";
import { readViewFile, type ServiceFilter } from "./view-file.ts";
import { type HeaderWanted, refuseHeader } from "./view-header.ts";
import { viewPath } from "./view-keeper.ts";

export interface LoadOptions extends HeaderWanted {
  readonly folder: string;
  /** Leaves other Services out. Default all are wanted. */
  readonly only?: ServiceFilter | undefined;
  /** Default {@link readBootId}. */
  readonly bootId?: string | undefined;
}

export type LoadedView =
  | { readonly kind: "none" }
  | { readonly kind: "refused"; readonly reason: string }
  | {
      readonly kind: "view";
      readonly update: ViewUpdate;
      /** When it was last known to be current, in milliseconds since 1970. */
      readonly currentAtMs: number;
      /** True if endpoints of this node were left out: their pods are gone, or have other addresses now. */
      readonly isAfterReboot: boolean;
    };

/** Reads the view that was kept for a node. A file that is unfit is left where it is, and what is wrong is returned. */
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
