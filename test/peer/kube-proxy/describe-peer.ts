import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { openLaboratory } from "@kpng/laboratory/open-laboratory.ts";
import { describe, test } from "vitest";
import { type Binaries, findBinaries } from "../../cluster/binaries.ts";

/** What the tests need of the machine. */
export interface PeerMachine {
  readonly paths: Extract<Binaries, { kind: "found" }>["paths"];
  /** Opens a laboratory; who asks closes it. */
  openLaboratory(): Promise<Laboratory>;
}

/**
 * Describes tests against the real kube-proxy in network namespaces.
 *
 * Where the programs, the namespaces or iptables cannot be had the tests are one skipped test that says why; in CI it
 * fails instead.
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
  // vitest's summary counts skipped tests and does not name them.
  process.stderr.write(`test/peer: skipped "${name}": ${machine}\n`);
  test.skip(`${name} (skipped: ${machine})`);
}

/** The machine, or why it is none for these tests. */
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
 * Returns why kube-proxy cannot program many rules here, or undefined if it can: it sends them all as one message, which
 * for who is not root may not be larger than net.core.wmem_max, some 900 rules.
 */
async function tryManyRules(laboratory: Laboratory): Promise<string | undefined> {
  const rules = Array.from({ length: 10_000 }, () => "-A INPUT -s 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DROP");
  await laboratory.add("many");
  const input = ["*filter", ...rules, "COMMIT", ""].join("\n");
  const { exitCode, stderr } = await laboratory.tryRun("many", ["iptables-restore"], input);
  if (exitCode === 0) return undefined;
  return `iptables cannot set ${rules.length} rules at once, which root may: ${stderr.trim().split("\n")[0]}`;
}
