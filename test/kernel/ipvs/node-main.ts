import { execFileSync } from "node:child_process";
import { createInterface } from "node:readline";
import { IpvsRuleSet } from "@kpng/backend-ipvs/commit/ipvs-rule-set.ts";
import { setKernel } from "@kpng/backend-ipvs/commit/kernel-support.ts";
import { RunTool } from "@kpng/backend-ipvs/read/run-tool.ts";
import { objectNames } from "@kpng/backend-ipvs/render/kernel-objects.ts";
import { RecentAddresses } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import type { RuleChange } from "@kpng/backend-kit/proxy/rule-set.ts";
import { RuleSets } from "@kpng/backend-kit/proxy/rule-sets.ts";
import { SyncRequests } from "@kpng/backend-kit/sync/sync-loop.ts";
import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import type { State } from "@kpng/laboratory/scenario/build.ts";
import type { Settings } from "@kpng/laboratory/scenario/scenario.ts";
import { families } from "@kpng/model/address.ts";
import type { ServiceKey } from "@kpng/model/service.ts";
import { proxySettingsOf } from "../../conformance/proxy-settings.ts";
import { viewOfState } from "../../conformance/view-of-state.ts";

/** Request of one line; the answer is one line, too. */
export type NodeRequest =
  /** Begins a new run of the backend, as after a restart, and applies a state. */
  | {
      readonly kind: "start";
      readonly settings: Settings;
      readonly state: State;
      readonly scheduler?: string;
    }
  /** Applies a state by comparing touched Services only, as a change of the view does. */
  | { readonly kind: "apply"; readonly state: State }
  /** Compares what is installed with the last state, and repairs it. */
  | { readonly kind: "repair" }
  /** Runs a shell command on the node, and returns its output. */
  | { readonly kind: "shell"; readonly command: string };

/** Answer of one line. */
export interface NodeAnswer {
  /** Empty if the request succeeded. */
  readonly error: string;
  /** Changes of each family. *Shape:* `v4 full 12 puts, 0 deletes`; empty if nothing. */
  readonly changes: readonly string[];
  readonly output: string;
}

// The backend on node n1, inside the guest: without watcher and stream, which other tests cover, because every process
// costs seconds there.

const names = objectNames("");
const runTool = new RunTool();
const silent = { error() {}, info() {}, debug() {}, with: () => silent };
const requests = new SyncRequests();
const { read: localAddresses, forget: forgetAddresses } = new RecentAddresses();
const kernel = { sysctls: new Sysctls(), runTool, log: silent };
let ruleSets: readonly IpvsRuleSet[] = [];
let rules: RuleSets | undefined;
/** Services of the last state. */
let keys: readonly ServiceKey[] = [];
let changes: string[] = [];

function open(settings: Settings, scheduler = "rr"): RuleSets {
  ruleSets = families.map(
    (family) =>
      new IpvsRuleSet({
        ...{ family, names, runTool, requests, localAddresses, log: silent },
        ...{ scheduler, excludedCIDRs: [], masqueradeBit: 14 },
      }),
  );
  return new RuleSets<RuleChange>({
    ruleSets,
    localAddresses,
    forgetAddresses,
    log: silent,
    settings: proxySettingsOf({ ...settings, localhostNodePorts: false }),
    onOutcome: ({ family, result }) => {
      if (result.kind !== "done" || result.change.mode === "none") return;
      changes.push(`${family} ${result.change.mode} ${JSON.stringify(result.change.fields)}`);
    },
  });
}

async function answer(request: NodeRequest): Promise<NodeAnswer> {
  changes = [];
  const stages = { committing: () => undefined };
  const outcomeOf = async () => {
    switch (request.kind) {
      case "start":
        rules = open(request.settings, request.scheduler);
        return await rules.sync(take(request.state).view, "all", stages);
      case "apply": {
        const { view, touched } = take(request.state);
        return await rules?.sync(view, touched, stages);
      }
      case "repair":
        return await rules?.repair();
      case "shell":
        return undefined;
    }
  };
  const failure = (await outcomeOf())?.failure;
  const output =
    request.kind === "shell" ? execFileSync("sh", ["-c", request.command], { encoding: "utf8", stdio: "pipe" }) : "";
  return { error: failure === undefined ? "" : String(failure.cause), changes, output };
}

await setKernel({ isStrictArp: false, timeouts: { tcpMs: 0, tcpFinMs: 0, udpMs: 0 } }, kernel);
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  const said = await answer(JSON.parse(line) as NodeRequest).catch((error: unknown) => ({
    ...{ error: String(error), changes, output: "" },
  }));
  process.stdout.write(`${JSON.stringify(said)}\n`);
}

/** Returns the view of a state, and the Services of this state and of the last one. */
function take(state: State) {
  const view = viewOfState(state);
  const touched = new Set([...keys, ...view.services.keys()]);
  keys = [...view.services.keys()];
  return { view, touched };
}
