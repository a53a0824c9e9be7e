/** How a field of KubeProxyConfiguration is handled; `readConfig` applies these rules to a file. */
export type FieldRule =
  /** The value sets the first of these options that the backend has. */
  | {
      readonly kind: "option";
      readonly flags: readonly string[];
      readonly type: FieldType;
      /** True if 0 or false is a value; otherwise, as in the API, a zero value counts as absent. */
      readonly isZeroMeant?: boolean | undefined;
      /** Another mode than that of the section that reads the field, too. Default: none. */
      readonly alsoIn?: ProxyMode | undefined;
    }
  | { readonly kind: "section"; readonly fields: FieldRules; readonly mode?: ProxyMode | undefined }
  /** Valid but ignored, with a log line unless the value is `standard`, kube-proxy's default. */
  | { readonly kind: "unsupported"; readonly reason: string; readonly standard?: unknown }
  /** Handled by `readConfig` itself: apiVersion, kind and mode. */
  | { readonly kind: "head" };

/** Type of a field's value. The addresses get kube-proxy's port if they have none. */
export type FieldType = "text" | "boolean" | "number" | "duration" | "texts" | "healthz-address" | "metrics-address";

/** Rules by name of the field. */
export type FieldRules = Readonly<Record<string, FieldRule>>;

/** Values of the field `mode`, and of BackendCommand.proxyMode. */
export type ProxyMode = "iptables" | "ipvs" | "nftables" | "kernelspace";

type OptionRule = Extract<FieldRule, { kind: "option" }>;

const option = (type: FieldType, ...flags: readonly string[]): OptionRule => ({ kind: "option", type, flags });
const meantOption = (type: FieldType, ...flags: readonly string[]): OptionRule => ({
  kind: "option",
  type,
  flags,
  isZeroMeant: true,
});
const unsupported = (reason: string, standard?: unknown): FieldRule => ({ kind: "unsupported", reason, standard });

const windows = unsupported("kpng has no Windows backend");
const noApi = unsupported("nodes talk to the watcher, not to the API server: see --api");

/**
 * All fields of KubeProxyConfiguration, kubeproxy.config.k8s.io/v1alpha1.
 *
 * *Source:* k8s.io/kube-proxy v0.36.3 `config/v1alpha1/types.go`, defaults of kube-proxy 1.36.3.
 */
export const configFields: FieldRules = {
  apiVersion: { kind: "head" },
  kind: { kind: "head" },
  mode: { kind: "head" },
  featureGates: unsupported("kpng has no feature gates"),
  clientConnection: noApi,
  configSyncPeriod: noApi,
  logging: unsupported("see --log-level"),
  hostnameOverride: option("text", "--node-name"),
  bindAddress: unsupported("the node's addresses come from its Node object", "0.0.0.0"),
  healthzBindAddress: option("healthz-address", "--healthz-bind-address"),
  metricsBindAddress: option("metrics-address", "--metrics-bind-address"),
  bindAddressHardFail: unsupported("an address that cannot be bound always ends the process"),
  enableProfiling: unsupported("Node.js is profiled with --cpu-prof or --inspect"),
  showHiddenMetricsForVersion: unsupported("kpng hides no metrics"),
  iptables: {
    kind: "section",
    mode: "iptables",
    fields: {
      // kube-proxy's ipvs mode has no fields of its own for these two.
      masqueradeBit: { ...meantOption("number", "--iptables-masquerade-bit"), alsoIn: "ipvs" },
      masqueradeAll: { ...option("boolean", "--masquerade-all"), alsoIn: "ipvs" },
      localhostNodePorts: meantOption("boolean", "--iptables-localhost-nodeports"),
      syncPeriod: option("duration", "--iptables-sync-period"),
      minSyncPeriod: option("duration", "--iptables-min-sync-period"),
    },
  },
  ipvs: {
    kind: "section",
    mode: "ipvs",
    fields: {
      syncPeriod: option("duration", "--ipvs-sync-period"),
      minSyncPeriod: option("duration", "--ipvs-min-sync-period"),
      scheduler: option("text", "--ipvs-scheduler"),
      excludeCIDRs: option("texts", "--ipvs-exclude-cidrs"),
      strictARP: option("boolean", "--ipvs-strict-arp"),
      tcpTimeout: option("duration", "--ipvs-tcp-timeout"),
      tcpFinTimeout: option("duration", "--ipvs-tcpfin-timeout"),
      udpTimeout: option("duration", "--ipvs-udp-timeout"),
    },
  },
  nftables: {
    kind: "section",
    mode: "nftables",
    fields: {
      masqueradeBit: meantOption("number", "--nftables-masquerade-bit", "--iptables-masquerade-bit"),
      masqueradeAll: option("boolean", "--masquerade-all"),
      syncPeriod: option("duration", "--nftables-sync-period", "--iptables-sync-period"),
      minSyncPeriod: option("duration", "--nftables-min-sync-period", "--iptables-min-sync-period"),
    },
  },
  winkernel: {
    kind: "section",
    fields: {
      networkName: windows,
      sourceVip: windows,
      enableDSR: windows,
      rootHnsEndpointName: windows,
      forwardHealthCheckVip: windows,
    },
  },
  detectLocalMode: option("text", "--detect-local-mode"),
  detectLocal: {
    kind: "section",
    fields: {
      bridgeInterface: option("text", "--pod-bridge-interface"),
      interfaceNamePrefix: option("text", "--pod-interface-name-prefix"),
    },
  },
  clusterCIDR: option("text", "--cluster-cidr"),
  nodePortAddresses: option("texts", "--nodeport-addresses"),
  oomScoreAdj: unsupported("set it in the pod or unit that starts the process", -999),
  conntrack: {
    kind: "section",
    fields: {
      maxPerCore: meantOption("number", "--conntrack-max-per-core"),
      min: meantOption("number", "--conntrack-min"),
      tcpEstablishedTimeout: meantOption("duration", "--conntrack-tcp-timeout-established"),
      tcpCloseWaitTimeout: meantOption("duration", "--conntrack-tcp-timeout-close-wait"),
      tcpBeLiberal: option("boolean", "--conntrack-tcp-be-liberal"),
      udpTimeout: option("duration", "--conntrack-udp-timeout"),
      udpStreamTimeout: option("duration", "--conntrack-udp-timeout-stream"),
    },
  },
  portRange: unsupported("kube-proxy ignores it too"),
  windowsRunAsService: windows,
};
