import { dirname } from "node:path";
import { type Import, isProduction } from "./source-files.ts";

/**
 * Folders of each package below `src`, in the order of their imports: a file imports from its own folder and from
 * folders to the left of it.
 *
 * The package root, ".", is on top unless the row places it: in `model`, `process` and `laboratory` it holds the
 * types and functions that everything else builds on.
 */
export const folderOrder: Readonly<Record<string, readonly string[]>> = {
  model: [".", "wire"],
  process: [".", "connection", "health", "run", "trace"],
  source: ["decode", ".", "file", "api", "replay", "simulate", "kube"],
  watcher: [
    ...["store", "view", "items", "identity", "connection", "stream/delta", "stream/session", "stream/serve", "trace"],
    ...["state-file", "inspect", "page"],
  ],
  "service-plan": [],
  laboratory: [".", "agent", "scenario", "check"],
  "backend-kit": [
    ...["types", "exec", "sysctl", "node-addresses", "state", "sync", "receive", "discovery", "disk"],
    ...["observe", "conntrack", "health-check", "inspect", "config", "backend", "proxy", "plan", "."],
  ],
  nftables: ["layout", "netlink", "render", "read", "commit"],
  "backend-callout": ["commit"],
  "backend-ebpf": ["program", "bpf", "layout", "tables", "datapath"],
  "backend-ipvs": ["render", "read", "diff", "commit"],
  "backend-iptables": ["render", "read", "diff", "commit"],
  "backend-json": [],
  "backend-nft": [],
  "backend-plan": [],
  "backend-userspace": ["traffic", "balance", "relay", "listen", "entry", "rules"],
  cli: [
    ...[
      "context",
      "fleet",
      "source",
      "sink",
      "certificates",
      "inspect/print",
      "inspect",
      "cluster",
      "conformance",
      "demo",
      "commands",
    ],
  ],
};

/**
 * Returns a line for each import of a production file that goes against the order of its package, and for each file
 * whose folder has no place in the order.
 */
export function findImportsAgainstOrder(
  imports: readonly Import[],
  order: Readonly<Record<string, readonly string[]>>,
): readonly string[] {
  const findings = new Set<string>();
  for (const { file, target } of imports) {
    if (!isProduction(file) || target === undefined) continue;
    const [from, to] = [placeOf(file), placeOf(target)];
    if (from.packageName !== to.packageName || from.folder === to.folder || to.folder.startsWith("gen")) continue;
    const row = order[from.packageName] ?? [];
    const folders = row.includes(".") ? row : [...row, "."];
    const [fromRank, toRank] = [folders.indexOf(from.folder), folders.indexOf(to.folder)];
    if (fromRank < 0) findings.add(`${file}: "${from.folder}" has no place in the order of ${from.packageName}`);
    else if (toRank < 0) findings.add(`${target}: "${to.folder}" has no place in the order of ${to.packageName}`);
    else if (toRank > fromRank)
      findings.add(`${file}: imports ${target}, but "${to.folder}" is above "${from.folder}"`);
  }
  return [...findings].sort();
}

function placeOf(file: string): { readonly packageName: string; readonly folder: string } {
  const [, packageName = "", ...rest] = dirname(file).split("/");
  return { packageName, folder: rest.slice(1).join("/") || "." };
}
