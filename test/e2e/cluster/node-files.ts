import { pauseImage } from "../images/test-images.ts";
import { type Addresses, isIPv6, type NodeAddresses } from "./network.ts";

/**
 * Returns the configuration files of a node by name: containerd, CNI plugins, kubelet, and those of its resolver.
 *
 * Pure. `folder` is where the files will be; `store` is the folder of containerd's images.
 */
export function makeNodeFiles(options: {
  readonly addresses: Addresses;
  readonly node: NodeAddresses;
  readonly folder: string;
  readonly store: string;
}): Readonly<Record<string, string>> {
  const { addresses, node, folder, store } = options;
  return {
    "containerd.toml": makeContainerdConfig(store, `${folder}/cni`),
    "cni/10-pods.conflist": JSON.stringify(makeNetwork(node)),
    "kubelet.yaml": JSON.stringify(makeKubeletConfig({ addresses, folder })),
    hosts: ["127.0.0.1 localhost", "::1 localhost", ...node.addresses.map((each) => `${each} ${node.name}`), ""].join(
      "\n",
    ),
    "resolv.conf": `nameserver ${addresses.dns}\n`,
  };
}

/**
 * Returns containerd's configuration. `networks` is the folder of the networks of pods; `image-store.ts`, which starts
 * no pods, has none.
 */
export function makeContainerdConfig(store: string, networks = "/etc/cni/net.d"): string {
  // Snapshotters that this cluster does not use would complain in the log. `opt` creates /opt/containerd.
  const unused = ["devmapper", "btrfs", "zfs", "aufs"].map((name) => `io.containerd.snapshotter.v1.${name}`);
  return `version = 2
root = "${store}"
state = "/run/containerd"
disabled_plugins = ${JSON.stringify([...unused, "io.containerd.internal.v1.opt"])}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${pauseImage}"
  disable_apparmor = true
  # Containers often lack CAP_SYS_RESOURCE, which a lower oom_score_adj needs.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${networks}"
`;
}

/** Returns the network of the pods of a node: a bridge with hairpin mode, and addresses from the node's CIDRs. */
function makeNetwork(node: NodeAddresses): object {
  return {
    cniVersion: "1.0.0",
    name: "pods",
    plugins: [
      {
        type: "bridge",
        bridge: "cni0",
        isGateway: true,
        hairpinMode: true,
        mtu: 1500,
        ipam: {
          type: "host-local",
          ranges: node.podCIDRs.map((subnet) => [{ subnet }]),
          routes: node.podCIDRs.map((subnet) => ({ dst: isIPv6(subnet) ? "::/0" : "0.0.0.0/0" })),
        },
      },
      { type: "portmap", capabilities: { portMappings: true }, snat: true },
    ],
  };
}

function makeKubeletConfig(options: { readonly addresses: Addresses; readonly folder: string }): object {
  const { addresses, folder } = options;
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    // Only this cluster reaches the kubelet.
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: "AlwaysAllow" },
    containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
    failCgroupV1: false,
    oomScoreAdj: 0,
    // No groups for classes of pods, because the nodes would share them.
    cgroupDriver: "cgroupfs",
    cgroupsPerQOS: false,
    enforceNodeAllocatable: [],
    clusterDNS: [addresses.dns],
    clusterDomain: "cluster.local",
    resolvConf: `${folder}/resolv.conf`,
    staticPodPath: `${folder}/static-pods`,
    // The images cannot be pulled again.
    imageGCHighThresholdPercent: 100,
    evictionHard: { "memory.available": "100Mi", "nodefs.available": "1%" },
    nodeStatusReportFrequency: "30s",
  };
}
