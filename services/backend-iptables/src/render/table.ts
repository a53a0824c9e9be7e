/** A table that rules are written to. The types of this file name tables and chains in all folders of this package. */
export type Table = "filter" | "nat";

/**
 * All tables, in the order in which a transaction commits them. With filter first, packets to a Service that loses its
 * endpoints are refused before the jump to the endpoints is removed. kube-proxy has the same order.
 */
export const tables: readonly Table[] = ["filter", "nat"];

/** Table and name of a chain. *Shape:* `nat KPNG-SERVICES`. */
export type ChainId = `${Table} ${string}`;

/** The rules of a chain as lines of a transaction: `-A CHAIN …\n` each; "" for a chain without rules. */
export type ChainBody = string;

/** Returns the identifier of a chain. */
export function chainId(table: Table, chain: string): ChainId {
  return `${table} ${chain}`;
}

/** Returns the table and the name in an identifier. */
export function splitChainId(id: ChainId): { readonly table: Table; readonly chain: string } {
  const at = id.indexOf(" ");
  return { table: id.startsWith("nat ") ? "nat" : "filter", chain: id.slice(at + 1) };
}
