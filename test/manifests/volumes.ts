import { chmodSync, chownSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ApiClient } from "../cluster/api-client.ts";
import type { PodSpec, Volume } from "./pod-spec.ts";
import type { Pod } from "./pods.ts";

/** A file or folder of the host that a container sees at another path. */
export interface Mount {
  readonly from: string;
  readonly to: string;
  readonly isReadOnly: boolean;
}

/** Where the files come from. */
export interface VolumeSources {
  readonly api: ApiClient;
  /** CA of the API server, which a mounted ServiceAccount contains. */
  readonly apiCaFile: string;
  /** Folder for the files. Volumes of hosts (`hostPath`) are below it, too, except those of the kernel. */
  readonly folder: string;
}

/**
 * Prepares the volumes of a pod as a kubelet does: Secrets, ConfigMaps and tokens from the API server, empty folders,
 * and paths of the host. Returns what to mount where in its container. `runContainer` calls it.
 *
 * Errors: a missing object, as the kubelet would report it; a kind of volume that the manifests do not use.
 */
export async function prepareVolumes(pod: Pod, sources: VolumeSources): Promise<readonly Mount[]> {
  const { spec } = pod;
  const mounts: Mount[] = [];
  for (const { name, mountPath, readOnly = false } of spec.containers[0]?.volumeMounts ?? []) {
    const volume = spec.volumes?.find((one) => one.name === name);
    if (volume === undefined) throw new Error(`volume ${name} is mounted, and does not exist`);
    mounts.push({ from: await prepare(volume, pod, sources), to: mountPath, isReadOnly: readOnly });
  }
  if (spec.automountServiceAccountToken ?? pod.mountsToken) {
    const from = makeFolder(sources.folder, "account");
    put(from, "token", await pod.requestToken(), spec);
    put(from, "ca.crt", readFileSync(sources.apiCaFile, "utf8"), spec);
    put(from, "namespace", "kube-system", spec);
    mounts.push({ from, to: "/var/run/secrets/kubernetes.io/serviceaccount", isReadOnly: true });
  }
  return mounts;
}

async function prepare(volume: Volume, pod: Pod, { api, folder }: VolumeSources): Promise<string> {
  const { name, secret, configMap, projected, emptyDir, hostPath } = volume;
  if (hostPath !== undefined) return pathOfHost(hostPath.path, hostPath.type, folder);
  const path = makeFolder(folder, name);
  if (secret !== undefined) {
    const { data } = await api.get(`/api/v1/namespaces/kube-system/secrets/${secret.secretName}`);
    for (const [key, text] of Object.entries(data as Readonly<Record<string, string>>)) {
      put(path, key, Buffer.from(text, "base64").toString(), pod.spec, secret.defaultMode);
    }
  } else if (configMap !== undefined) {
    const { data } = await api.get(`/api/v1/namespaces/kube-system/configmaps/${configMap.name}`);
    for (const [key, text] of Object.entries(data as Readonly<Record<string, string>>)) put(path, key, text, pod.spec);
  } else if (projected !== undefined) {
    for (const { serviceAccountToken: token } of projected.sources) {
      if (token !== undefined) put(path, token.path, await pod.requestToken(token.audience), pod.spec);
    }
  } else if (emptyDir !== undefined) {
    chownSync(path, 0, pod.spec.securityContext?.fsGroup ?? 0);
    chmodSync(path, 0o777);
  } else throw new Error(`volume ${name} is of a kind that this test does not know`);
  return path;
}

/** Files of the kernel are those of this machine: the network namespace separates what a backend changes in them. */
function pathOfHost(path: string, type: string | undefined, folder: string): string {
  if (path.startsWith("/proc/sys/net")) return path;
  const copy = join(folder, "host", path);
  mkdirSync(type === "FileOrCreate" ? join(copy, "..") : copy, { recursive: true });
  if (type === "FileOrCreate") writeFileSync(copy, "", { flag: "a", mode: 0o644 });
  return copy;
}

function makeFolder(folder: string, name: string): string {
  const path = join(folder, "volumes", name);
  mkdirSync(path, { recursive: true });
  return path;
}

/** Gives the file the group of the pod, as a kubelet does; without one, every user of the container may read it. */
function put(folder: string, name: string, text: string, { securityContext }: PodSpec, mode = 0o644): void {
  const path = join(folder, name);
  writeFileSync(path, text);
  chownSync(path, 0, securityContext?.fsGroup ?? 0);
  chmodSync(path, mode);
}
