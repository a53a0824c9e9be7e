/** The tables that rules are written to; a transaction commits them in this order. */
export type Table = "filter" | "nat";

/**
 * filter first: what must be refused is refused before the jump that would have served it is gone, and kube-proxy has
 * the same order.
 */
export const tables: readonly Table[] = ["filter", "nat"];

/** *Shape:* `nat KPNG-SERVICES`. */
export type ChainId = `${Table} ${string}`;

export function chainId(table: Table, chain: string): ChainId {
  return `${table} ${chain}`;
}

export function splitChainId(id: ChainId): { readonly table: Table; readonly chain: string } {
  const at = id.indexOf(" ");
  return { table: id.startsWith("nat ") ? "nat" : "filter", chain: id.slice(at + 1) };
}
