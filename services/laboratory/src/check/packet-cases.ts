import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EndpointManifest } from "../scenario/build.ts";
import type { Scenario, Update } from "../scenario/scenario.ts";
import { scenarios, settingsKey } from "../scenario/scenarios.ts";
import { updates } from "../scenario/updates.ts";
import { checkPackets } from "./check-packets.ts";
import { checkUpdate } from "./check-updates.ts";
import type { CommandProxy } from "./command-proxy.ts";
import { describeNode, rulesOf, whyNotSeen } from "./describe-node.ts";
import { whyNoSctp } from "./sctp.ts";
import { served, servedWays } from "./served-state.ts";
import { Traffic } from "./traffic.ts";
import { NodeFirewall, type TwoNodes } from "./two-nodes.ts";

/** Thrown by a case that cannot be run with this proxy or on this machine; the message is the reason. */
export class NotRunnable extends Error {}

/** Thrown by a case from which the proxy is excepted on purpose; the message is the reason. */
export class Excepted extends NotRunnable {}

/** A case of `kpng conformance packets`. */
export interface PacketCase {
  /** *Shape:* `scenario/a-node-port`. */
  readonly id: string;
  /** What must be right, in words. */
  readonly name: string;
  /** Returns a line for each unexpected result. Errors: NotRunnable; the proxy does not apply a state, or ends. */
  readonly run: (run: PacketRun) => Promise<readonly string[]>;
}

/** One proxy in one network, through all cases: each case also tests the change from the state of the one before. */
export class PacketRun {
  readonly world: TwoNodes;
  readonly proxy: CommandProxy;
  readonly #firewall = new NodeFirewall();
  readonly #clean: readonly string[];
  #settings: string | undefined;
  /** Folder of the explanations; made with the first one. */
  #folder: string | undefined;
  #explanationCount = 0;

  private constructor(world: TwoNodes, proxy: CommandProxy, clean: readonly string[]) {
    this.world = world;
    this.proxy = proxy;
    this.#clean = clean;
  }

  /** The proxy must not have been started. */
  static async begin(world: TwoNodes, proxy: CommandProxy): Promise<PacketRun> {
    return new PacketRun(world, proxy, await describeNode(world, proxy.word("bpf")));
  }

  /**
   * Applies the state of a scenario, with its settings and its firewall. Errors: NotRunnable; the proxy does not apply it,
   * with what explains that.
   */
  async bringTo(scenario: Scenario): Promise<void> {
    const key = settingsKey(scenario);
    if (!this.proxy.takesSettings && key !== settingsKey({})) throw new NotRunnable("the command has no {options}");
    await this.#firewall.put(this.world, scenario.firewall);
    // Unless it succeeds, the next scenario starts the proxy again.
    const isRunning = this.#settings === key;
    this.#settings = undefined;
    try {
      if (isRunning) await this.proxy.apply(scenario.state);
      else await this.proxy.start(scenario.settings ?? {}, scenario.state);
    } catch (error) {
      const [reason = ""] = (error instanceof Error ? error.message : String(error)).split("\n");
      throw new Error((await this.explain([reason], scenario)).join("\n"), { cause: error });
    }
    this.#settings = key;
  }

  /** Stops the proxy, and runs its cleanup. */
  async cleanUp(): Promise<void> {
    this.#settings = undefined;
    await this.#firewall.put(this.world, undefined);
    await this.proxy.stop();
    await this.proxy.cleanUp();
  }

  /** Returns a line for each rule, address, route … of n1 that was not there before the first start, or is missing. */
  async leftovers(): Promise<readonly string[]> {
    const now = await describeNode(this.world, this.proxy.word("bpf"));
    return [
      ...now.filter((line) => !this.#clean.includes(line)).map((line) => `left: ${line}`),
      ...this.#clean.filter((line) => !now.includes(line)).map((line) => `missing: ${line}`),
    ];
  }

  /**
   * Adds to unexpected results what explains them: the endpoints, the rules that name them, and the proxy's log. The
   * last line names a file with all of the state, the rules and the log.
   */
  async explain(wrong: readonly string[], { state }: Pick<Scenario, "state">): Promise<readonly string[]> {
    if (wrong.length === 0) return [];
    const { services, slices } = state;
    const view = slices.map(
      ({ metadata, endpoints }) => `${metadata.name}: ${endpoints.map(describeEndpoint).join(", ")}`,
    );
    const names = [
      ...services.flatMap(({ metadata, spec }) => [`default/${metadata.name}`, ...spec.clusterIPs]),
      ...slices.flatMap(({ endpoints }) => endpoints.flatMap(({ addresses }) => addresses)),
    ];
    const all = await rulesOf(this.world);
    const rules = all.filter((line) => names.some((name) => line.includes(name)));
    const log = this.proxy.log();
    this.#folder ??= mkdtempSync(join(tmpdir(), "kpng-packets-"));
    // Not the scenario's name: several cases share a scenario.
    this.#explanationCount += 1;
    const file = join(this.#folder, `${this.#explanationCount}.txt`);
    const parts = [wrong.join("\n"), JSON.stringify(state, undefined, 1), all.join("\n"), log];
    writeFileSync(file, `${parts.join("\n\n")}\n`);
    const lines = [...firstOf(wrong), "state:", ...view, "rules:", ...firstOf(rules)];
    return [...lines, "log:", ...log.split("\n").slice(-10), `all of the state, rules and log: ${file}`];
  }
}

/** All cases, in the order in which they run. */
export const packetCases: readonly PacketCase[] = [
  ...scenarios.map(scenarioCase),
  ...updates.map(updateCase),
  continuityCase("syncs", "traffic goes on through changes of other Services", async ({ proxy }) => {
    for (let count = 0; count < 5; count++) await proxy.apply(served.state);
  }),
  continuityCase("restart", "traffic goes on through a restart", ({ proxy }) => proxy.restart("SIGTERM")),
  continuityCase("kill", "traffic goes on when the proxy is killed and restarted", ({ proxy }) =>
    proxy.restart("SIGKILL"),
  ),
  continuityCase("watcher", "traffic goes on through a restart of the watcher", ({ proxy }) => proxy.restartStates()),
  {
    id: "cleanup",
    name: "the cleanup command removes everything of the proxy",
    run: async (run) => {
      if (run.proxy.command.cleanup === undefined) throw new NotRunnable("no --cleanup");
      await run.bringTo(served);
      const whyNot = await whyNotSeen(run.world);
      await run.cleanUp();
      const wrong = await run.leftovers();
      if (whyNot !== undefined && wrong.length === 0) throw new NotRunnable(whyNot);
      return wrong;
    },
  },
];

/** Returns the id of a scenario or an update. *Shape:* `scenario/a-cluster-ip-with-two-ports`. */
export function idOf(kind: "scenario" | "update", { name }: { readonly name: string }): string {
  return `${kind}/${name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}`;
}

function scenarioCase(scenario: Scenario): PacketCase {
  return {
    id: idOf("scenario", scenario),
    name: scenario.name,
    run: async (run) => {
      const { world, proxy } = run;
      const { notRunWith } = scenario;
      const varies = notRunWith === undefined ? undefined : proxy.profile.reasonFor(notRunWith);
      if (varies !== undefined) throw new Excepted(varies);
      await run.bringTo(scenario);
      const wrong = await checkPackets(world, scenario, proxy.profile);
      const whyNot = scenario.packets.some(({ protocol }) => protocol === "sctp") ? whyNoSctp() : undefined;
      if (whyNot !== undefined && wrong.length === 0) throw new NotRunnable(whyNot);
      return run.explain(wrong, scenario);
    },
  };
}

function updateCase(update: Update): PacketCase {
  const { before, after, event } = update;
  return {
    id: idOf("update", update),
    name: `${update.name}, during traffic`,
    run: async (run) => {
      if (event === "rules lost" && run.proxy.command.loseRules === undefined) throw new NotRunnable("no --lose-rules");
      await run.bringTo(before);
      const wrong = await checkUpdate(run.world, run.proxy, update);
      return run.explain(wrong, after);
    },
  };
}

/** A case in which traffic must not notice an event: no loss, no refusal, no change of the endpoint. */
function continuityCase(id: string, name: string, act: (run: PacketRun) => Promise<unknown>): PacketCase {
  return {
    id: `continuity/${id}`,
    name,
    run: async (run) => {
      const { world, proxy } = run;
      if (id === "watcher" && proxy.states.restart === undefined)
        throw new NotRunnable("an API server serves the states");
      await run.bringTo(served);
      await using traffic = await Traffic.start(world, served.state, servedWays);
      await act(run);
      const wrong = await checkPackets(world, served, proxy.profile);
      const report = await traffic.end();
      const lines = [...wrong, ...report.wrong, ...(report.answeredProbes === 0 ? ["no probe was answered"] : [])];
      return run.explain(lines, served);
    },
  };
}

/** *Shape:* `10.1.1.12 on n1`, `10.1.1.12 on n1 not ready, serving, terminating`. */
function describeEndpoint({ addresses, nodeName, conditions }: EndpointManifest): string {
  const { ready, serving, terminating } = conditions;
  const is = [serving ? "serving" : "not serving", ...(terminating ? ["terminating"] : [])];
  return `${addresses} on ${nodeName}${ready ? "" : ` not ready, ${is.join(", ")}`}`;
}

/** The first 20 lines: what a developer reads of a failure. */
function firstOf(lines: readonly string[]): readonly string[] {
  return lines.length <= 20 ? lines : [...lines.slice(0, 20), `… and ${lines.length - 20} more`];
}
