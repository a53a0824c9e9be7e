import { execFileSync } from "node:child_process";
import { globSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { getOrMake } from "@kpng/model/collections.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { parseAllDocuments } from "yaml";
import type { KubeObject } from "../cluster/api-client.ts";
import type { Container, PodSpec } from "./pod-spec.ts";

/** Folders of deploy/kubernetes that can be applied. `base` folders are parts, and useless alone. */
export const kustomizations: readonly string[] = globSync("deploy/kubernetes/**/kustomization.yaml")
  .map(dirname)
  .filter((folder) => !/\/(components\/[^/]+|watcher\/base|backends\/(base|kernel))$/.test(folder))
  .toSorted();

const built = new Map<string, readonly KubeObject[]>();

/**
 * Returns the objects of a kustomization, as `kubectl apply -k` sends them. Each folder is built once. Errors: the
 * output of kubectl.
 */
export function buildKustomization(kubectl: string, folder: string): readonly KubeObject[] {
  return getOrMake(built, folder, () => {
    const text = execFileSync(kubectl, ["kustomize", folder], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    return parseAllDocuments(text).map((document) => document.toJS() as KubeObject);
  });
}

/** Writes a kustomization into a temporary folder; DEPLOY stands for deploy/kubernetes. */
export function makeKustomization(text: string): string {
  const folder = temporaryFolder();
  symlinkSync(resolve("deploy"), join(folder, "deploy"));
  mkdirSync(join(folder, "own"));
  writeFileSync(join(folder, "own", "kustomization.yaml"), text.replaceAll("DEPLOY", "../deploy/kubernetes"));
  return join(folder, "own");
}

/** Returns the pod template of a Deployment or DaemonSet; undefined for other objects. */
export function podSpecOf({ kind, spec }: KubeObject): PodSpec | undefined {
  if (kind !== "Deployment" && kind !== "DaemonSet") return undefined;
  return (spec as { readonly template: { readonly spec: PodSpec } }).template.spec;
}

/** Returns the program that a container runs, and its arguments. Images start the program that they are named after. */
export function commandLineOf({ image, command, args = [] }: Container): readonly string[] {
  const name = image.replace(/^.*\//, "").replace(/:.*$/, "");
  return [...(command ?? [name === "kpng-watcher" ? "kpng" : name]), ...args];
}
