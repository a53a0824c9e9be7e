import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";

/** A backend that is built into `kpng`, loaded only if a command line needs it. */
interface BuiltInBackend {
  /** Words that name the backend on a command line. */
  readonly words: readonly string[];
  readonly load: () => Promise<BackendCommand>;
}

function backend(names: readonly string[], load: () => Promise<BackendCommand>): BuiltInBackend {
  return { words: names.flatMap((name) => [name, `to-${name}`]), load };
}

/** All built-in backends, in the order in which help lists them. */
const builtIn: readonly BuiltInBackend[] = [
  backend(["json"], async () => (await import("@kpng/backend-json/json-backend.ts")).jsonBackend),
  backend(["plan"], async () => (await import("@kpng/backend-plan/plan-backend.ts")).planBackend),
  backend(["callout"], async () => (await import("@kpng/backend-callout/callout-backend.ts")).calloutBackend),
  backend(["iptables"], async () => (await import("@kpng/backend-iptables/backend.ts")).iptablesBackend),
  backend(["nft"], async () => (await import("@kpng/backend-nft/backend.ts")).nftBackend),
  backend(
    ["userspace", "userspacelin"],
    async () => (await import("@kpng/backend-userspace/backend.ts")).userspaceBackend,
  ),
  backend(["ipvs"], async () => (await import("@kpng/backend-ipvs/backend.ts")).ipvsBackend),
  backend(["ebpf"], async () => (await import("@kpng/backend-ebpf/backend.ts")).ebpfBackend),
];

/**
 * Loads the backends that a command line names. If the command line names none, loads all backends if a list of them is
 * needed, otherwise none. Without `words`, loads all.
 */
export async function loadBackends(words?: readonly string[]): Promise<readonly BackendCommand[]> {
  const groups = ["local", "to-local"];
  if (words !== undefined && !words.some((word) => groups.includes(word))) return [];
  const named = builtIn.filter((one) => one.words.some((word) => words?.includes(word)));
  return Promise.all((named.length === 0 ? builtIn : named).map(({ load }) => load()));
}
