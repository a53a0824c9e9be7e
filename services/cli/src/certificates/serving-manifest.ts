import { stringify } from "yaml";
import type { PemPair } from "./issue.ts";

/**
 * Returns the objects that the manifests in deploy/kubernetes expect, as YAML: the Secret `kpng-watcher-tls` for
 * watchers, and the ConfigMap `kpng-ca` for nodes. Two objects, because an account that may read the CA must not read
 * the key. `kpng certificates serving -o manifest` prints it. Separate from the command, because it is pure.
 */
export function servingManifest(namespace: string, { key, certificate }: PemPair, authority: string): string {
  const labels = { "app.kubernetes.io/name": "kpng" };
  const base64 = (text: string): string => Buffer.from(text).toString("base64");
  const objects = [
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "kpng-watcher-tls", namespace, labels },
      type: "kubernetes.io/tls",
      data: { "tls.crt": base64(certificate), "tls.key": base64(key) },
    },
    {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "kpng-ca", namespace, labels },
      data: { "ca.crt": authority },
    },
  ];
  return objects.map((object) => stringify(object, { lineWidth: 0 })).join("---\n");
}
