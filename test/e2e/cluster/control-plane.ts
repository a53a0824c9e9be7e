import { generateKeyPairSync } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { Child, startIn } from "../../cluster/child.ts";
import { makeKubeconfig, writeTokenFile } from "../../cluster/users.ts";
import type { ProgramPaths } from "../program-paths.ts";
import { type Addresses, controlPlaneName, hostAndPort } from "./network.ts";

/** Port of the API server on the host of the control plane. */
export const apiServerPort = 6443;

/** The programs of the control plane, not yet started, and the administrator's kubeconfig. */
export interface ControlPlane {
  readonly etcd: Child;
  readonly apiServer: Child;
  readonly controllerManager: Child;
  readonly scheduler: Child;
  readonly kubeconfig: string;
  /** Host and port of the API server, outside of the network of Services. */
  readonly server: string;
}

/** Writes the files of a control plane to `folder` and returns its programs. The API server needs etcd running. */
export function makeControlPlane(options: {
  readonly laboratory: Laboratory;
  readonly folder: string;
  readonly addresses: Addresses;
  readonly paths: ProgramPaths;
}): ControlPlane {
  const { laboratory, folder, addresses, paths } = options;
  mkdirSync(folder);
  const file = (name: string): string => join(folder, name);
  const [address = ""] = addresses.controlPlane;
  const server = hostAndPort(address, apiServerPort);
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  writeFileSync(file("service-account.key"), privateKey.export({ type: "pkcs8", format: "pem" }));
  writeTokenFile(file("tokens.csv"), ["admin"]);
  const caFile = file("certificates/apiserver.crt");
  writeFileSync(file("kubeconfig"), makeKubeconfig({ server: `https://${server}`, caFile, user: "admin" }));
  const start = startIn(laboratory, controlPlaneName);
  const child = (program: keyof ProgramPaths, args: readonly string[]): Child =>
    new Child(program, [paths[program], ...args], file(`${program}.log`), start);
  const client = [`--kubeconfig=${file("kubeconfig")}`, "--leader-elect=false", "--bind-address=127.0.0.1"];
  const etcdUrl = "http://127.0.0.1:2379";
  return {
    kubeconfig: file("kubeconfig"),
    server,
    etcd: child("etcd", [
      `--data-dir=${file("etcd")}`,
      `--listen-client-urls=${etcdUrl}`,
      `--advertise-client-urls=${etcdUrl}`,
      "--listen-peer-urls=http://127.0.0.1:2380",
      "--unsafe-no-fsync",
    ]),
    apiServer: child("kube-apiserver", [
      `--etcd-servers=${etcdUrl}`,
      `--cert-dir=${file("certificates")}`,
      `--bind-address=${address}`,
      `--advertise-address=${address}`,
      `--secure-port=${apiServerPort}`,
      `--service-cluster-ip-range=${addresses.serviceCIDRs.join(",")}`,
      "--authorization-mode=Node,RBAC",
      `--token-auth-file=${file("tokens.csv")}`,
      `--service-account-key-file=${file("service-account.key")}`,
      `--service-account-signing-key-file=${file("service-account.key")}`,
      "--service-account-issuer=https://kubernetes.default.svc",
      "--allow-privileged=true",
      "--kubelet-preferred-address-types=InternalIP",
    ]),
    controllerManager: child("kube-controller-manager", [
      ...client,
      `--service-account-private-key-file=${file("service-account.key")}`,
      `--root-ca-file=${caFile}`,
      "--use-service-account-credentials",
    ]),
    scheduler: child("kube-scheduler", client),
  };
}
