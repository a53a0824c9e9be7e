import type { Program } from "../cluster/binaries.ts";

/** Programs of a cluster and of its tests. */
export const programs = [
  ...(["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"] as const),
  ...(["kubelet", "kubectl", "pause", "coredns", "agnhost", "regression-issue-74839", "e2e.test", "ginkgo"] as const),
] satisfies readonly Program[];

/** Paths of these programs. */
export type ProgramPaths = Readonly<Record<(typeof programs)[number], string>>;
