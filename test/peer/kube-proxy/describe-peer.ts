import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { openLaboratory } from "@kpng/laboratory/open-laboratory.ts";
import { describe, test } from "vitest";
import { type Binaries, findBinaries } from "../../cluster/binaries.ts";

/** Programs and namespaces that the tests need. */
export interface PeerMachine {
  readonly paths: Extract<Binaries, { kind: "found" }>["paths"];
  /** Opens a laboratory, which the caller closes. */
  openLaboratory(): Promise<Laboratory>;
}

/**
 * Describes tests against the real kube-proxy in network namespaces.
 *
 * If programs, namespaces or iptables are not available, a single skipped test replaces them and prints the reason; in
 * CI it fails.
 */
export async function describePeer(name: string, tests: (machine: PeerMachine) => void): Promise<void> {
  const machine = await findMachine();
  if (typeof machine !== "string") {
    describe(name, () => tests(machine));
    return;
  }
  if (process.env.CI === "true") {
    return test(name, () => {
      throw new Error(`CI must be able to run kube-proxy: ${machine}`);
    });
  }
  // Vitest's summary only counts skipped tests.
  process.stderr.write(`test/peer: skipped "${name}": ${machine}\n`);
  test.skip(`${name} (skipped: ${machine})`);
}

/** Returns the machine, or the reason why the tests cannot run here. */
async function findMachine(): Promise<PeerMachine | string> {
  const open = () => openLaboratory((text) => process.stderr.write(`test/peer: ${text}\n`));
  const probe = await open();
  if (probe.kind === "unavailable") return probe.reason;
  const refusal = await tryManyRules(probe.laboratory).finally(() => probe.laboratory.close());
  if (refusal !== undefined) return refusal;
  const binaries = await findBinaries(["etcd", "kube-apiserver", "kube-proxy"]);
  if (binaries.kind === "missing") return binaries.reason;
  return {
    paths: binaries.paths,
    async openLaboratory() {
      const opened = await open();
      if (opened.kind === "unavailable") throw new Error(opened.reason);
      return opened.laboratory;
    },
  };
}

/**
 * Returns the reason why kube-proxy cannot install many rules here; undefined if it can. It sends all rules in one
 * message, whose size is limited to net.core.wmem_max (some 900 rules) for users other than root.
 */
async function tryManyRules(laboratory: Laboratory): Promise<string | undefined> {
  const rules = Array.from({ length: 10_000 }, () => "-A INPUT -s 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DROP");
  await laboratory.add("many");
  const input = ["*filter", ...rules, "COMMIT", ""].join("\n");
  const { exitCode, stderr } = await laboratory.tryRun("many", ["iptables-restore"], input);
  if (exitCode === 0) return undefined;
  return `iptables cannot set ${rules.length} rules at once, which needs root: ${stderr.trim().split("\n")[0]}`;
}
