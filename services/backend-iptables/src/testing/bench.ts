import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { readProxySettings } from "@kpng/backend-kit/proxy/proxy-settings.ts";
import { RuleSets } from "@kpng/backend-kit/proxy/rule-sets.ts";
import type { NodeView, ServiceView } from "@kpng/model/node-view.ts";
import { serviceKey } from "@kpng/model/service.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { keepYoungGenerationSmall } from "@kpng/process/run/memory.ts";
import { type IptablesChange, IptablesRuleSet } from "../commit/iptables-rule-set.ts";
import { restoreRules } from "../commit/open-rule-sets.ts";
import { scanRules } from "../read/installed-rules.ts";
import { findTools, maxChainsOf, runTool } from "../read/tools.ts";
import { ChainNames } from "../render/chains.ts";

// Measures this backend: `npm run bench -- iptables-alone`. It changes the rules of its network namespace, so start it
// in a new one: unshare --net node services/backend-iptables/src/testing/bench.ts --services 1000 --variant nft

const { values } = parseArgs({
  options: {
    services: { type: "string", default: "1000" },
    ports: { type: "string", default: "2" },
    endpoints: { type: "string", default: "10" },
    variant: { type: "string", default: "nft" },
  },
});
// As in a backend. A young generation that may grow takes 30 to 70 MB more, depending on when V8 collects it.
keepYoungGenerationSmall();
const variant = values.variant === "legacy" ? "legacy" : "nft";
const [serviceCount, portCount, endpointCount] = [values.services, values.ports, values.endpoints].map(Number) as [
  number,
  number,
  number,
];

const tools = await findTools("v4", variant, runTool);
const options = { tools, run: runTool };
const silent = { error() {}, info() {}, debug() {}, with: () => silent };
const stages = { committing: () => undefined };
const newRules = (): RuleSets<IptablesChange> => {
  const kernel = {
    read: (take: (text: string) => void) => scanRules(tools, runTool, take),
    restore: (text: string) => restoreRules(text, options),
    maxChains: maxChainsOf(tools),
  };
  const settings = { names: new ChainNames("KPNG-"), masqueradeMark: 0x4000 };
  return new RuleSets({
    settings: readProxySettings({ clusterCidr: ["10.0.0.0/8"] }, true),
    ruleSets: [new IptablesRuleSet({ family: "v4", settings, kernel })],
    onOutcome: () => undefined,
    log: silent,
  });
};

const services = Array.from({ length: serviceCount }, (_, at) => makeService(at));
const first = services[0] as ServiceView;
const whole = view(services);
const key = serviceKey(first.service);

const rules = newRules();
await measure("full sync, no rules installed", 1, () => done(rules.sync(whole, "all", stages)));
const changed = new Map(whole.services).set(key, { ...first, endpoints: first.endpoints.slice(1) });
const views: readonly NodeView[] = [{ ...whole, services: changed }, whole];
await measure("one endpoint removed, then added", 10, async (at) =>
  done(rules.sync(views[at % 2] as NodeView, new Set([key]), stages)),
);
const restarted = newRules();
await measure("restart, all rules installed", 1, () => done(restarted.sync(whole, "all", stages)));

async function done(outcomes: ReturnType<RuleSets["repair"]>): Promise<void> {
  const failure = (await outcomes)?.failure;
  if (failure !== undefined) throw failure.cause;
}

function makeService(at: number): ServiceView {
  const ports = Array.from({ length: portCount }, (_, index) => port(80 + index, { name: `p${index}` }));
  return service(`ns-${at % 50}/svc-${at}`, {
    ips: [`172.${30 + (at >> 16)}.${(at * 37) % 256}.${(at >> 8) % 256}`],
    ports,
    endpoints: Array.from({ length: endpointCount }, (_, index) =>
      endpoint(
        `10.${(at * endpointCount + index) >> 16}.${((at * endpointCount + index) >> 8) % 256}.${(at * endpointCount + index) % 256}`,
        {
          ports: ports.map(({ name, port: number }) => ({ name, port: 8000 + number })),
          isOnNode: index === 0 && at % 20 === 0,
        },
      ),
    ),
  });
}

async function measure(what: string, times: number, run: (at: number) => Promise<void>): Promise<void> {
  const [startMs, startCpuMs] = [performance.now(), cpuMs()];
  for (let at = 0; at < times; at++) await run(at);
  const [wallMs, usedMs] = [(performance.now() - startMs) / times, (cpuMs() - startCpuMs) / times];
  print(what, `${wallMs.toFixed(wallMs < 100 ? 1 : 0)} ms wall, ${usedMs.toFixed(0)} ms CPU with tools`);
}

/** CPU time of this process and of its finished children, in milliseconds; the kernel counts in units of 10 ms. */
function cpuMs(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) * 10, 0);
}

function print(what: string, figure: string): void {
  process.stdout.write(`${what.padEnd(34)} ${figure}\n`);
}
