import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";

/** All built-in backends, in the order in which help lists them. */
const builtIn: readonly (readonly [names: readonly string[], load: () => Promise<BackendCommand>])[] = [
  [["json"], async () => (await import("@kpng/backend-json/json-backend.ts")).jsonBackend],
  [["plan"], async () => (await import("@kpng/backend-plan/plan-backend.ts")).planBackend],
  [["callout"], async () => (await import("@kpng/backend-callout/callout-backend.ts")).calloutBackend],
  [["iptables"], async () => (await import("@kpng/backend-iptables/backend.ts")).iptablesBackend],
  [["nft"], async () => (await import("@kpng/backend-nft/backend.ts")).nftBackend],
  [["userspace", "userspacelin"], async () => (await import("@kpng/backend-userspace/backend.ts")).userspaceBackend],
  [["ipvs"], async () => (await import("@kpng/backend-ipvs/backend.ts")).ipvsBackend],
  [["ebpf"], async () => (await import("@kpng/backend-ebpf/backend.ts")).ebpfBackend],
];

/**
 * Loads the backends that a command line names. If the command line names none, loads all backends if a list of them is
 * needed, otherwise none. Without `words`, loads all.
 */
export async function loadBackends(words?: readonly string[]): Promise<readonly BackendCommand[]> {
  const groups = ["local", "to-local"];
  if (words !== undefined && !words.some((word) => groups.includes(word))) return [];
  const named = builtIn.filter(([names]) =>
    names.some((name) => words?.includes(name) || words?.includes(`to-${name}`)),
  );
  return Promise.all((named.length === 0 ? builtIn : named).map(([, load]) => load()));
}
