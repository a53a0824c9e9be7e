import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { moduleFolder } from "../cluster/binaries.ts";

test("control plane, nodes and tests of a cluster are of the same version of Kubernetes", () => {
  const [controlPlane, nodes] = (["kube-apiserver", "kubelet"] as const).map((program) => {
    const text = readFileSync(join(moduleFolder(program), "go.mod"), "utf8");
    return /^\s*k8s\.io\/kubernetes (\S+)$/m.exec(text)?.[1];
  });
  expect(controlPlane).toMatch(/^v1\./);
  expect(nodes).toBe(controlPlane);
});
