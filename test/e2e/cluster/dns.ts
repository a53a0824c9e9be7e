import { agnhostImage } from "../images/test-images.ts";
import type { Addresses } from "./network.ts";

const metadata = { name: "coredns", namespace: "kube-system", labels: { "k8s-app": "kube-dns" } };

/** Answers expire after a second, because tests change what they ask for. */
const corefile = `.:53 {
    errors
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 1
    }
    cache 1
}
`;

/**
 * Returns the objects of the cluster's DNS: CoreDNS behind the Service that kubelets name to their pods.
 *
 * It reaches the API server at its Service IP, so it becomes ready when a Service proxy works.
 */
export function makeDns(addresses: Addresses): readonly object[] {
  return [
    { apiVersion: "v1", kind: "ServiceAccount", metadata },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "coredns" },
      rules: [
        { apiGroups: [""], resources: ["services", "pods", "namespaces"], verbs: ["list", "watch"] },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "coredns" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "coredns" },
      subjects: [{ kind: "ServiceAccount", name: "coredns", namespace: "kube-system" }],
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata, data: { Corefile: corefile } },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { ...metadata, name: "kube-dns" },
      spec: {
        clusterIP: addresses.dns,
        selector: metadata.labels,
        ports: [
          { name: "dns", port: 53, protocol: "UDP" },
          { name: "dns-tcp", port: 53, protocol: "TCP" },
        ],
      },
    },
    {
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata,
      spec: {
        replicas: 1,
        selector: { matchLabels: metadata.labels },
        template: {
          metadata: { labels: metadata.labels },
          spec: {
            serviceAccountName: "coredns",
            dnsPolicy: "Default",
            containers: [
              {
                name: "coredns",
                image: agnhostImage,
                command: ["/coredns", "-conf", "/etc/coredns/Corefile"],
                readinessProbe: { httpGet: { path: "/ready", port: 8181 }, periodSeconds: 1 },
                volumeMounts: [{ name: "config", mountPath: "/etc/coredns" }],
              },
            ],
            volumes: [{ name: "config", configMap: { name: "coredns" } }],
          },
        },
      },
    },
  ];
}
