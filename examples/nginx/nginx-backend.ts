import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  type Destination,
  type Family,
  type Frontend,
  type NodePlan,
  proxyBackend,
  type RuleChange,
  type RuleSet,
  runProgram,
  type ServiceKey,
  type ServicePlan,
  type ServicePortPlan,
  type SyncStages,
} from "@kpng/backend-kit";

const families: readonly Family[] = ["v4", "v6"];

/** Writes the Services of a node as `stream` configuration of nginx: one file for each family, and a reload. */
export const nginxBackend = proxyBackend({
  name: "nginx",
  proxyMode: "nginx",
  description: "serve Services with nginx on this node",
  options: [
    { flags: "--nginx-dir <folder>", description: "folder of the configuration", default: "/etc/nginx/kpng" },
    { flags: "--nginx-reload <command>", description: "shell command to reload nginx", default: "nginx -s reload" },
  ],
  examples: "\nnginx.conf needs: stream { include /etc/nginx/kpng/*.conf; }\n",
  makeProxy: (options) => {
    const [folder, reload] = [String(options.nginxDir), String(options.nginxReload)];
    const pathOf = (family: Family): string => join(folder, `services-${family}.conf`);
    return {
      wantsLoopbackNodePorts: false,
      carriesTraffic: true,
      openRuleSets: async (host) => ({
        ruleSets: families.map((family) => makeRuleSet(family, pathOf(family), reload, host.destination)),
      }),
      cleanUp: async () => {
        for (const family of families) await rm(pathOf(family), { force: true });
        await reloadNginx(reload);
      },
    };
  },
});

/** The configuration of one family, in one file. */
export function makeRuleSet(family: Family, path: string, reload: string, destination: Destination): RuleSet {
  const blocks = new Map<ServiceKey, string>();
  const wantedText = (): string =>
    [...blocks.keys()]
      .toSorted()
      .map((key) => blocks.get(key))
      .join("");
  const readText = (): Promise<string> => readFile(path, "utf8").catch(() => "");
  /** False at the start, and after a reload that failed: nginx may not have loaded the file. */
  let isLoaded = destination.kind !== "kernel";

  /** Replaces the file in one step and reloads nginx, unless nginx has loaded the same text. */
  async function write(mode: "full" | "partial", stages?: SyncStages): Promise<RuleChange> {
    const [wanted, installed] = [wantedText(), await readText()];
    const isChanged = wanted !== installed || !isLoaded;
    if (isChanged) stages?.committing();
    if (isChanged && destination.kind === "print") destination.print(wanted);
    if (isChanged && destination.kind === "kernel") {
      isLoaded = false;
      await writeFile(`${path}.tmp`, wanted);
      await rename(`${path}.tmp`, path);
      await reloadNginx(reload);
      isLoaded = true;
    }
    const [missing, unwanted] = [linesOf(wanted, installed), linesOf(installed, wanted)];
    const difference = { summary: `${path}: lines differ`, missing, unwanted, fields: { file: path } };
    return {
      mode: isChanged ? mode : "none",
      fields: { added: missing.length, removed: unwanted.length },
      differences: () => (isChanged ? [difference] : []),
    };
  }

  const rules = { count: () => linesOf(wantedText()).length, lines: () => linesOf(wantedText()) };
  return {
    family,
    sync: (plan, touched, stages) => {
      if (touched === "all") blocks.clear();
      for (const key of touched === "all" ? plan.keys() : touched) {
        const service = plan.service(key);
        if (service === undefined) blocks.delete(key);
        else blocks.set(key, renderService(service, plan.node));
      }
      return write(touched === "all" ? "full" : "partial", stages);
    },
    repair: () => write("full"),
    isInstalled: async () => (await readText()) !== "",
    desired: rules,
    // A sync that succeeded leaves no other text.
    installed: rules,
  };
}

async function reloadNginx(command: string): Promise<void> {
  const end = await runProgram(["sh", "-c", command], { timeoutMs: 10_000 });
  if (end.kind !== "exited" || end.exitCode !== 0) throw new Error(`"${command}" failed: ${JSON.stringify(end)}`);
}

function renderService({ ports }: ServicePlan, node: NodePlan): string {
  return ports.flatMap((port) => port.frontends.map((frontend) => renderFrontend(port, frontend, node))).join("");
}

/** Nginx replaces the source address, so every client is treated as a client from outside the cluster. */
function renderFrontend(port: ServicePortPlan, { routes, ...frontend }: Frontend, node: NodePlan): string {
  const route = routes.outside;
  const host = (address: string): string => (address.includes(":") ? `[${address}]` : address);
  const all = node.family === "v6" ? "::" : "0.0.0.0";
  const nodeAddresses = node.nodePortAddresses === "all" ? [all] : node.nodePortAddresses;
  const addresses = frontend.address === undefined ? nodeAddresses : [frontend.address];
  if (route.kind !== "balance" || port.protocol === "SCTP" || addresses.length === 0) return "";
  const upstream = [port.name, port.protocol, frontend.kind, addresses[0]].join(".").replaceAll(/[/:]/g, ".");
  const { ranges = [], ownAddresses = [] } = frontend.sources ?? {};
  const udp = port.protocol === "UDP" ? " udp" : "";
  return [
    `upstream ${upstream} {`,
    ...(port.affinitySeconds === undefined ? [] : ["  hash $remote_addr;"]),
    ...port.sets[route.set].map((endpoint) => `  server ${host(endpoint.address)}:${endpoint.port};`),
    "}",
    "server {",
    ...addresses.map((address) => `  listen ${host(address)}:${frontend.port}${udp};`),
    ...[...ranges, ...ownAddresses].map((source) => `  allow ${source};`),
    ...(frontend.sources === undefined ? [] : ["  deny all;"]),
    `  proxy_pass ${upstream};`,
    "}\n",
  ].join("\n");
}

/** The lines of a text that another text does not have. */
function linesOf(text: string, other = ""): readonly string[] {
  const others = new Set(other.split("\n")).add("");
  return text.split("\n").filter((line) => !others.has(line));
}
