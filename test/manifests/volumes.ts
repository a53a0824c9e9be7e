import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { cgroupMount } from "@kpng/laboratory/check/node-cgroup.ts";
import type { V1Volume } from "@kubernetes/client-node";
import type { ApiClient } from "../cluster/api-client.ts";
import type { PodSpec } from "./pod-spec.ts";
import type { Pod } from "./pods.ts";

/** A file or folder of the host that a container sees at another path. */
interface Mount {
  readonly from: string;
  readonly to: string;
  /** Commands for a shell in the mount namespace of the container, before `from` is mounted. */
  readonly prepare?: readonly string[];
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
    const from = await prepare(volume, pod, sources);
    const commands = kernelFolders[volume.hostPath?.path ?? ""]?.(from) ?? [];
    mounts.push({ from, to: mountPath, isReadOnly: readOnly, prepare: commands });
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

async function prepare(volume: V1Volume, pod: Pod, { api, folder }: VolumeSources): Promise<string> {
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
    for (const { serviceAccountToken: token } of projected.sources ?? []) {
      if (token !== undefined) put(path, token.path, await pod.requestToken(token.audience), pod.spec);
    }
  } else if (emptyDir !== undefined) {
    chownSync(path, 0, pod.spec.securityContext?.fsGroup ?? 0);
    chmodSync(path, 0o777);
  } else throw new Error(`volume ${name} is of a kind that this test does not know`);
  return path;
}

/**
 * Folders of the kernel in which a container could change this machine, with the commands that mount a substitute at a
 * folder: a new BPF file system, or a cgroup without processes.
 */
const kernelFolders: Readonly<Record<string, (folder: string) => readonly string[]>> = {
  "/sys/fs/bpf": (folder) => [`mount -t bpf bpf '${folder}'`],
  "/sys/fs/cgroup": (folder) => {
    const mount = cgroupMount();
    if (mount === undefined) return [];
    const name = basename(testCgroup(mount));
    mkdirSync(join(mount, name), { recursive: true });
    return [`mount -t cgroup2 cgroup2 '${folder}'`, `mount --bind '${folder}/${name}' '${folder}'`];
  },
};

function testCgroup(mount: string): string {
  return join(mount, `kpng-test-manifests-${process.pid}`);
}

/** Removes the cgroup of containers that have ended, if there is one. */
export function removeCgroup(): void {
  const mount = cgroupMount();
  if (mount !== undefined && existsSync(testCgroup(mount))) rmdirSync(testCgroup(mount));
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
