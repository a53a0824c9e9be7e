import { readFile } from "node:fs/promises";
import { isRecord } from "@kpng/model/narrowing.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import type { Command, Option } from "commander";
import { BackendError } from "../types/backend-error.ts";

/**
 * The option that each field of KubeProxyConfiguration sets, keyed by the path of the field. For the fields in {@link
 * optionalFields}, `0` and `false` are values; for all others they count as absent, as in the API.
 *
 * *Source:* k8s.io/kube-proxy v0.36.3 `config/v1alpha1/types.go`.
 */
export const configFields: Readonly<Record<string, string>> = {
  hostnameOverride: "--node-name",
  healthzBindAddress: "--healthz-bind-address",
  metricsBindAddress: "--metrics-bind-address",
  detectLocalMode: "--detect-local-mode",
  "detectLocal.bridgeInterface": "--pod-bridge-interface",
  "detectLocal.interfaceNamePrefix": "--pod-interface-name-prefix",
  clusterCIDR: "--cluster-cidr",
  nodePortAddresses: "--nodeport-addresses",
  "iptables.masqueradeBit": "--iptables-masquerade-bit",
  "iptables.masqueradeAll": "--masquerade-all",
  "iptables.localhostNodePorts": "--iptables-localhost-nodeports",
  "iptables.syncPeriod": "--iptables-sync-period",
  "iptables.minSyncPeriod": "--iptables-min-sync-period",
  "ipvs.syncPeriod": "--ipvs-sync-period",
  "ipvs.minSyncPeriod": "--ipvs-min-sync-period",
  "ipvs.scheduler": "--ipvs-scheduler",
  "ipvs.excludeCIDRs": "--ipvs-exclude-cidrs",
  "ipvs.strictARP": "--ipvs-strict-arp",
  "ipvs.tcpTimeout": "--ipvs-tcp-timeout",
  "ipvs.tcpFinTimeout": "--ipvs-tcpfin-timeout",
  "ipvs.udpTimeout": "--ipvs-udp-timeout",
  "nftables.masqueradeBit": "--nftables-masquerade-bit",
  "nftables.masqueradeAll": "--masquerade-all",
  "nftables.syncPeriod": "--nftables-sync-period",
  "nftables.minSyncPeriod": "--nftables-min-sync-period",
  "conntrack.maxPerCore": "--conntrack-max-per-core",
  "conntrack.min": "--conntrack-min",
  "conntrack.tcpEstablishedTimeout": "--conntrack-tcp-timeout-established",
  "conntrack.tcpCloseWaitTimeout": "--conntrack-tcp-timeout-close-wait",
  "conntrack.tcpBeLiberal": "--conntrack-tcp-be-liberal",
  "conntrack.udpTimeout": "--conntrack-udp-timeout",
  "conntrack.udpStreamTimeout": "--conntrack-udp-timeout-stream",
};

/** Fields that are pointers in the API, so that a zero value differs from an absent field. */
const optionalFields: ReadonlySet<string> = new Set([
  "iptables.masqueradeBit",
  "iptables.localhostNodePorts",
  "nftables.masqueradeBit",
  "conntrack.maxPerCore",
  "conntrack.min",
  "conntrack.tcpEstablishedTimeout",
  "conntrack.tcpCloseWaitTimeout",
]);

const modes = ["iptables", "ipvs", "nftables"];

/** Fields of the section `iptables` that kube-proxy's ipvs mode also reads. */
const alsoInIpvs: readonly string[] = ["iptables.masqueradeBit", "iptables.masqueradeAll"];

/** Ports that kube-proxy adds to an address without a port. */
const standardPorts: ReadonlyMap<string, number> = new Map([
  ["healthzBindAddress", 10_256],
  ["metricsBindAddress", 10_249],
]);

/**
 * Adds the option `--config` to the command of a service proxy: a KubeProxyConfiguration file whose fields set the
 * options with the same meaning. The command line and the environment take precedence over the file.
 *
 * The file is read before the command's action runs; if it is invalid, the command fails with BAD_CONFIG. Fields
 * without an option are logged and ignored, as kube-proxy does with unknown fields. Zero values count as absent,
 * because the file that kubeadm writes contains every field.
 */
export function acceptConfigFile(command: Command, proxyMode: string, log: Log): void {
  addOptions(command, [
    {
      flags: "--config <file>",
      description: "KubeProxyConfiguration file (YAML); flags take precedence over its fields",
    },
  ]);
  command.hook("preAction", async (_command, acting) => {
    const path: unknown = acting.getOptionValue("config");
    if (typeof path !== "string") return;
    const fields = await readConfigFile(path, proxyMode);
    for (const [field, value] of fields) {
      if (isZero(value) && !(optionalFields.has(field) && value !== null)) continue;
      const flag = Object.hasOwn(configFields, field) ? configFields[field] : undefined;
      const option = acting.options.find(({ long }) => long === flag);
      if (flag === undefined || option === undefined) {
        const reason = flag === undefined ? "kpng has no such option" : `this backend has no option ${flag}`;
        log.info("ignoring field of --config", { field, reason });
        continue;
      }
      const name = option.attributeName();
      // An invalid field is an error even if the command line or the environment overrides it.
      const parsed = parseValue(option, field, value);
      if (["cli", "env"].includes(acting.getOptionValueSource(name) ?? "")) continue;
      acting.setOptionValueWithSource(name, parsed, "config");
    }
  });
}

/**
 * Returns the fields of a KubeProxyConfiguration by path, without the sections of other modes. Errors: BAD_CONFIG if
 * the file cannot be read, is not a KubeProxyConfiguration, or has another mode.
 */
async function readConfigFile(path: string, proxyMode: string): Promise<readonly Field[]> {
  let document: unknown;
  try {
    // Load the parser only if it is needed, because it takes memory.
    const { parse } = await import("yaml");
    document = parse(await readFile(path, "utf8"));
  } catch (cause) {
    throw new BackendError("BAD_CONFIG", `--config ${path}: ${reasonOf(cause)}`, { cause });
  }
  const { apiVersion, kind, mode = "", ...fields } = isRecord(document) ? document : {};
  if (apiVersion !== "kubeproxy.config.k8s.io/v1alpha1" || kind !== "KubeProxyConfiguration") {
    const text = `--config ${path}: it is not a KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1`;
    throw new BackendError("BAD_CONFIG", text);
  }
  if (mode !== "" && mode !== null && mode !== proxyMode) {
    throw new BackendError("BAD_CONFIG", `--config ${path}: mode is ${String(mode)}, and this backend is ${proxyMode}`);
  }
  const isRead = ([field]: Field): boolean => {
    const [section = ""] = field.split(".");
    return !modes.includes(section) || section === proxyMode || (proxyMode === "ipvs" && alsoInIpvs.includes(field));
  };
  return flatten(fields).filter(isRead);
}

/** *Shape of the path:* `iptables.masqueradeAll`. */
type Field = readonly [path: string, value: unknown];

function flatten(values: Readonly<Record<string, unknown>>, prefix = ""): readonly Field[] {
  return Object.entries(values).flatMap(([name, value]) =>
    isRecord(value) ? flatten(value, `${prefix}${name}.`) : [[`${prefix}${name}`, value] as const],
  );
}

/** Parses a value as commander does. Errors: BAD_CONFIG, which names the field. */
function parseValue(option: Option, field: string, value: unknown): unknown {
  const port = standardPorts.get(field);
  const text = port === undefined ? String(value) : withPort(String(value), port);
  try {
    if (option.isBoolean()) {
      if (typeof value !== "boolean") throw new Error("expected true or false");
      return value;
    }
    return option.parseArg === undefined ? text : option.parseArg(text, option.defaultValue);
  } catch (cause) {
    throw new BackendError("BAD_CONFIG", `--config: ${field} ${JSON.stringify(value)}: ${reasonOf(cause)}`, { cause });
  }
}

function withPort(address: string, port: number): string {
  if (/^[^:]*:\d+$|\]:\d+$/.test(address)) return address;
  return address.includes(":") ? `[${address.replace(/^\[|\]$/g, "")}]:${port}` : `${address}:${port}`;
}

function isZero(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === null || value === false || value === 0 || /^(0+(\.0+)?(ns|us|µs|ms|s|m|h)?)?$/.test(String(value));
}
