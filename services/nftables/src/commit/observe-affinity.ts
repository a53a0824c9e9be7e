import { familyLabels } from "@kpng/backend-kit/observe/family-labels.ts";
import { Counter, type Registry } from "prom-client";
import type { TableId } from "../netlink/element-batch.ts";
import type { TableConnection } from "../netlink/table-connection.ts";
import { notRemembered } from "../render/skeleton.ts";

/** A table and how to read it. */
export interface ObservedTable {
  readonly id: TableId;
  readonly connection: Pick<TableConnection, "readCounter">;
}

/**
 * Adds the metric of clients that a full map of affinity does not remember. Each scrape reads the counter in the kernel
 * of each table; one that cannot be read leaves the metric as it was. `backend.ts` calls it for tables in the kernel.
 */
export function observeAffinity(registry: Registry, tables: readonly ObservedTable[]): void {
  new Counter({
    name: "kpng_nft_affinity_not_remembered_total",
    help: "Connections whose client is not remembered, because the map of clients is full (--max-affinity-clients)",
    labelNames: ["ip_family"] as const,
    registers: [registry],
    async collect() {
      for (const { id, connection } of tables) {
        const count = await connection.readCounter(id, notRemembered).catch(() => undefined);
        if (count === undefined) continue;
        const labels = { ip_family: familyLabels[id.family] };
        this.remove(labels);
        this.inc(labels, count);
      }
    },
  });
}
