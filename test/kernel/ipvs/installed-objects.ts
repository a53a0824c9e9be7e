import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { comparableRules } from "../rules.ts";

// One command, because each process takes long in a guest.
const listing = ["ipvsadm -S -n", "ip -o address show", "ipset save", "iptables-save", "ip6tables-save"];
const separator = "----";

/**
 * Returns what kpng-ipvs has in a namespace, comparable between namespaces: virtual servers, addresses, elements of
 * ipsets and rules.
 *
 * A UDP endpoint with weight 0 that another virtual server uses is left out: it serves, so it finishes its flows where
 * it is no longer chosen. A run that never chose it there does not have it. An endpoint that serves nowhere must be
 * gone, and is listed.
 */
export async function installedObjects(laboratory: Laboratory, namespace: string): Promise<readonly string[]> {
  const text = await laboratory.run(namespace, ["sh", "-ec", listing.join(`; echo ${separator}; `)]);
  const [servers = "", addresses = "", sets = "", v4 = "", v6 = ""] = text.split(`${separator}\n`);
  const real = (line: string, weight: 0 | 1): string =>
    new RegExp(`^-a -u .* -r (\\S+) -m -w ${weight}$`).exec(line)?.[1] ?? "none";
  const lines = servers.split("\n").map((line) => line.trim());
  const inUse = new Set(lines.map((line) => real(line, 1)).filter((one) => one !== "none"));
  const objects = [
    ...lines.filter((line) => !inUse.has(real(line, 0))),
    ...addresses.split("\n").flatMap((line) => / kube-ipvs0 +inet6? (?!fe80:)(\S+)/.exec(line)?.[1] ?? []),
    // The sizes of ipsets depend on their history.
    ...sets.split("\n").map((line) => line.replace(/ (hashsize|bucketsize|initval) \S+/g, "")),
  ].filter((line) => line !== "");
  return [...objects.toSorted(), ...comparableRules({ v4, v6 }, "KPNGIPVS-")];
}
