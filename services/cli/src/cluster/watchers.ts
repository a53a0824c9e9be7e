import { isRecord } from "@kpng/model/narrowing.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { type ReadTls, readCredentials } from "@kpng/process/credential-files.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { Options } from "../context/command-context.ts";
import type { Replica } from "../inspect/client.ts";
import { exec, portForward } from "./channels.ts";
import { NamespaceClient, type Pod } from "./pods.ts";
import { throughTunnel } from "./tunnel.ts";

/** Label of all kpng pods, from deploy/kubernetes. Their components are watchers, relays and backends. */
const label = "app.kubernetes.io/name=kpng";

/** ServiceAccount whose tokens allow watchers to be queried, from deploy/kubernetes/watcher/rbac.yaml. */
const account = "kpng-inspection";

/** Value of the watchers' `--token-audience` in deploy/kubernetes. */
const audience = "kpng";

/** Lifetime of a token, in seconds. A watcher ends a `--watch` stream when the token has expired. */
const tokenSeconds = 3_600;

/**
 * Finds the ready watchers and relays of a cluster, and returns each with a transport through the API server, which
 * forwards connections to its pod. No Service, DNS or node needs to be reachable.
 *
 * **Identity.** Watchers in a cluster grant loopback connections no rights, so the caller requests a token for the
 * ServiceAccount `kpng-inspection`, which watchers accept (`--inspection-accounts`). RBAC thus decides who may query
 * watchers, by the right to create these tokens. A token is valid only for watchers, and for an hour. The kubeconfig's
 * own token is never sent, because a watcher could use it to act as the caller at the API server. A certificate or
 * token given in the options replaces the requested token.
 *
 * A watcher proves its identity with a certificate from the CA in the ConfigMap `kpng-ca`. The names in the certificate
 * do not matter here: nodes identify the watcher by them, but in this case the API server has chosen the pod.
 *
 * Errors: BAD_OPTION without a usable kubeconfig; REQUEST_FAILED if the API server does not answer or refuses, or if no
 * watcher is ready. If forwarding fails, the calls fail.
 */
export async function findWatchers(options: Options, signal: AbortSignal): Promise<readonly Replica[]> {
  const namespace = await openNamespace(options, signal);
  // Include relays, because they serve nodes that watchers list as absent.
  const labels = `${label},app.kubernetes.io/component in (watcher,relay)`;
  const pods = readyPods("watcher", await namespace.listPods(labels), namespace, options);
  const given = readCredentials(options);
  const files = given.tls?.();
  const isProven = given.token !== undefined || files?.cert !== undefined;
  const [tls, token] = await Promise.all([
    files?.ca === undefined ? addCa(given.tls, namespace) : given.tls,
    isProven ? given.token : requestToken(namespace),
  ]);
  return Promise.all(
    pods.map(({ name, node, port }) =>
      throughTunnel(
        `${name} on ${node}`,
        () => namespace.open("pods/portforward", `pods/${name}/portforward?ports=${port}`, portForward),
        (tunnel) => dial({ api: `https://${name}`, tls, token, tunnel }),
      ),
    ),
  );
}

/**
 * Finds the backend of the node that `--node` names, and returns it with a transport through `kpng connect`, which runs
 * in the backend's pod, because a backend answers only on a unix socket, which no port reaches.
 *
 * Errors: those of {@link findWatchers}; BAD_OPTION without a node.
 */
export async function findBackends(options: Options, signal: AbortSignal): Promise<readonly Replica[]> {
  if (options.node === undefined) {
    throw new ProcessError("BAD_OPTION", "--node is required: the node whose backend is asked");
  }
  const namespace = await openNamespace(options, signal);
  const labels = `${label},app.kubernetes.io/component notin (watcher,relay)`;
  const pods = await namespace.listPods(labels, String(options.node));
  const command = "command=kpng&command=connect&stdin=true&stdout=true&stderr=true";
  return Promise.all(
    readyPods(`backend on ${String(options.node)}`, pods, namespace, options).map(({ name, node }) =>
      throughTunnel(
        `${name} on ${node}`,
        () => namespace.open("pods/exec", `pods/${name}/exec?container=backend&${command}`, exec),
        (path) => dial({ api: `unix://${path}` }),
      ),
    ),
  );
}

async function openNamespace(options: Options, signal: AbortSignal): Promise<NamespaceClient> {
  const { kubeconfig, context, kpngNamespace } = options as Record<string, string | undefined>;
  // Load the Kubernetes client only on demand, because it takes half a second and 80 MB.
  const { connectKube } = await import("@kpng/source/kube/connect.ts");
  const client = connectKube({ kubeconfig, context });
  await client.credentials().catch((cause: unknown) => {
    throw new ProcessError("REQUEST_FAILED", "the kubeconfig gives no credentials", { cause });
  });
  return new NamespaceClient(String(kpngNamespace), client, signal);
}

async function addCa(given: ReadTls | undefined, namespace: NamespaceClient): Promise<ReadTls> {
  const { data } = await namespace.request("get configmaps/kpng-ca", "configmaps/kpng-ca");
  const pem = isRecord(data) ? data["ca.crt"] : undefined;
  if (typeof pem !== "string") {
    throw new ProcessError("REQUEST_FAILED", `ConfigMap ${namespace.name}/kpng-ca has no ca.crt (docs/install.md)`);
  }
  const ca = Buffer.from(pem);
  return () => ({ ...given?.(), ca });
}

async function requestToken(namespace: NamespaceClient): Promise<() => string> {
  const spec = { audiences: [audience], expirationSeconds: tokenSeconds };
  const request = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec };
  const right = `create serviceaccounts/token of ${account}`;
  const { status } = await namespace.request(right, `serviceaccounts/${account}/token`, request);
  const token = isRecord(status) ? String(status.token) : "";
  return () => token;
}

/**
 * Returns the pods that can be queried, and warns about the others. Errors: REQUEST_FAILED if there are none;
 * BAD_OPTION.
 */
function readyPods(
  what: string,
  pods: readonly Pod[],
  { name: place }: NamespaceClient,
  options: Options,
): readonly Pod[] {
  const names = pods.map(({ name }) => name).join(", ");
  const chosen = options.pod === undefined ? pods : pods.filter(({ name }) => name === options.pod);
  if (pods.length === 0) {
    const hint = "is it the right context, and is kpng installed there (docs/install.md)? Or name its --kpng-namespace";
    throw new ProcessError("REQUEST_FAILED", `no ${what}: namespace ${place} has no such pod of kpng\nHint: ${hint}`);
  }
  if (chosen.length === 0) {
    throw new ProcessError("BAD_OPTION", `--pod ${String(options.pod)} is no ${what}; there are: ${names}`);
  }
  const states = chosen.flatMap(({ name, problem }) => (problem === undefined ? [] : [`${name} is ${problem}`]));
  if (states.length === chosen.length) {
    const hint = `kubectl describe pods --namespace ${place} ${names.replaceAll(",", "")}`;
    throw new ProcessError("REQUEST_FAILED", `no ${what} is ready: ${states.join(", ")}\nHint: ${hint}`);
  }
  for (const state of states) process.stderr.write(`warning: ${state}, and not asked\n`);
  return chosen.filter(({ problem }) => problem === undefined);
}
