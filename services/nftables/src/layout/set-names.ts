/**
 * Names of the sets and maps of nftables that all Services share. `renderSkeleton` declares them, `ServiceElements`
 * fills them, and `read/` reads them. This file has only the names, so that all folders can import it.
 *
 * `record` is last: its one element is written after all others if they need several transactions.
 */
export const sharedSets = [
  "frontends",
  "local_frontends",
  "nodeports",
  "local_nodeports",
  "slots",
  "picks",
  "refused",
  "dropped",
  "refused_nodeports",
  "dropped_nodeports",
  "cluster_ips",
  "hairpin",
  "firewall",
  "sticky_sets",
  "sticky_counts",
  "sticky_slots",
  "sticky_endpoints",
  "record",
] as const;

/** The name of one of these sets. */
export type SharedSet = (typeof sharedSets)[number];

/**
 * Data of the elements of a set: nothing, a value, or a chain that evaluation goes to or jumps to. "comment": elements
 * without data whose comment is stored for the next run of the program.
 */
export const dataOf: Readonly<Record<SharedSet, "none" | "value" | "goto" | "jump" | "comment">> = {
  frontends: "value",
  local_frontends: "value",
  nodeports: "value",
  local_nodeports: "value",
  slots: "value",
  picks: "goto",
  refused: "none",
  dropped: "none",
  refused_nodeports: "none",
  dropped_nodeports: "none",
  cluster_ips: "none",
  hairpin: "none",
  firewall: "goto",
  sticky_sets: "goto",
  sticky_counts: "jump",
  sticky_slots: "value",
  sticky_endpoints: "value",
  record: "comment",
};
