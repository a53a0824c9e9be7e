import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { type ApiClient, ApiError, type KubeObject } from "./api-client.ts";
import { until } from "./until.ts";

const rbacFile = join(import.meta.dirname, "../../deploy/kubernetes/watcher/rbac.yaml");

const collections: Readonly<Record<string, string>> = {
  ServiceAccount: "/api/v1/namespaces/kube-system/serviceaccounts",
  ClusterRole: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
  ClusterRoleBinding: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
};

/** Creates the objects of deploy/kubernetes/watcher/rbac.yaml and waits until the authorizer has them. */
export async function applyRbac(api: ApiClient): Promise<void> {
  for (const document of parseAllDocuments(readFileSync(rbacFile, "utf8"))) {
    const object = document.toJS() as KubeObject;
    const collection = collections[object.kind ?? ""];
    if (collection === undefined) throw new Error(`rbac.yaml has an object of unknown kind ${object.kind}`);
    try {
      await api.create(collection, object);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 409) throw error;
    }
  }
  await until("the rights are effective", () =>
    mayAccount(api, "kpng-watcher", { verb: "list", resource: "services" }),
  );
}

/** Something that an account may or may not do in the namespace kube-system, or in the whole cluster. */
export interface Right {
  readonly verb: string;
  readonly resource: string;
  readonly group?: string;
  /** Default: any object of the resource. */
  readonly name?: string;
}

/** Asks the API server's authorizer whether an account of kube-system has a right. */
export async function mayAccount(
  api: ApiClient,
  account: string,
  { verb, resource, group = "", name }: Right,
): Promise<boolean> {
  const review = (await api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: {
      user: `system:serviceaccount:kube-system:${account}`,
      groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
      resourceAttributes: { verb, resource, group, ...(name === undefined ? {} : { name }) },
    },
  })) as { readonly status: { readonly allowed: boolean } };
  return review.status.allowed;
}

/** The kinds that `kpng kube` watches. */
export const watchedKinds: readonly Omit<Right, "verb">[] = [
  { resource: "services" },
  { resource: "nodes" },
  { resource: "endpointslices", group: "discovery.k8s.io" },
  { resource: "servicecidrs", group: "networking.k8s.io" },
];

/** How `kpng kube` identifies the cluster. */
export const identityRight: Right = { verb: "get", resource: "namespaces", name: "kube-system" };

/** Rights near to those of our accounts, which a wildcard or a mistake would grant. None has them. */
export const refusedRights: readonly Right[] = [
  ...watchedKinds.map((kind) => ({ ...kind, verb: "update" })),
  { verb: "get", resource: "namespaces", name: "default" },
  { verb: "list", resource: "secrets" },
  { verb: "get", resource: "configmaps" },
  { verb: "list", resource: "pods" },
  { verb: "get", resource: "nodes/proxy" },
  { verb: "create", resource: "serviceaccounts/token" },
  { verb: "create", resource: "subjectaccessreviews", group: "authorization.k8s.io" },
  { verb: "create", resource: "daemonsets", group: "apps" },
];
