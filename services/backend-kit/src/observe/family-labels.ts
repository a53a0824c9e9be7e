import type { Family } from "@kpng/model/address.ts";

/** Values of the label `ip_family`, as kube-proxy writes them. */
export const familyLabels: Readonly<Record<Family, "IPv4" | "IPv6">> = { v4: "IPv4", v6: "IPv6" };

/** kube-proxy's buckets for durations of its own work: 1 ms, doubling, to 16.4 s. *Unit:* seconds. */
export const shortBuckets: readonly number[] = Array.from({ length: 15 }, (_, index) => 0.001 * 2 ** index);
