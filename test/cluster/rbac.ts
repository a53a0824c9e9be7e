import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { type ApiClient, ApiError, type KubeObject } from "./api-client.ts";
import { until } from "./until.ts";
import { kpngUserName } from "./users.ts";

const rbacFile = join(import.meta.dirname, "../../deploy/kubernetes/watcher/rbac.yaml");

export const clusterRolePath = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kpng-watcher";

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
  await until("the rights are effective", () => mayKpng(api, { verb: "list", resource: "services" }));
}

export interface Right {
  readonly verb: string;
  readonly resource: string;
  readonly group?: string | undefined;
  readonly namespace?: string | undefined;
}

/** Asks the API server's authorizer whether the watcher's ServiceAccount may do something. */
export async function mayKpng(api: ApiClient, { verb, resource, group = "", namespace }: Right): Promise<boolean> {
  const review = (await api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: {
      user: kpngUserName,
      groups: ["system:serviceaccounts", "system:authenticated"],
      resourceAttributes: { verb, resource, group, namespace },
    },
  })) as { readonly status: { readonly allowed: boolean } };
  return review.status.allowed;
}
