import { text } from "node:stream/consumers";
import { parseAllDocuments, stringify } from "yaml";
import { type KubeObject, makeStaticPod } from "./static-pod.ts";

// Reads the DaemonSet of a backend and the ConfigMap `kpng` in YAML, and prints the static pod of the backend:
//
//   { kubectl kustomize deploy/kubernetes/backends/nft; echo ---
//     kubectl --namespace kube-system get configmap kpng --output yaml; } | npx node deploy/static-pods/main.ts
//
// docs/guides/static-pods.md says what else a node needs. The exit status is 1 if an object is missing.

const documents = parseAllDocuments(await text(process.stdin));
try {
  const objects = documents.map((document) => {
    const [error] = document.errors;
    if (error !== undefined) throw error;
    return document.toJS() as KubeObject;
  });
  process.stdout.write(stringify(makeStaticPod(objects.filter((object) => object !== null))));
} catch (error) {
  process.stderr.write(`Error: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
