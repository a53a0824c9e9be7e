import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { moduleFolder } from "../cluster/binaries.ts";
import { needsGuest, whyNoProxy } from "./requirements.ts";

afterEach(() => vi.unstubAllEnvs());

test.skipIf(!needsGuest("ipvs"))(
  "a proxy that needs IPVS is refused without IPVS and without a kernel for a guest",
  () => {
    vi.stubEnv("KPNG_GUEST_KERNEL", undefined);
    expect(whyNoProxy("ipvs")).toMatch(/needs IPVS .*KPNG_GUEST_KERNEL/);
  },
);

test("a proxy that needs no IPVS never runs in a guest", () => {
  expect(needsGuest("nft")).toBe(false);
  expect(whyNoProxy("kube-proxy")).toBeUndefined();
});

test("control plane, nodes and tests of a cluster are of the same version of Kubernetes", () => {
  const [controlPlane, nodes] = (["kube-apiserver", "kubelet"] as const).map((program) => {
    const text = readFileSync(join(moduleFolder(program), "go.mod"), "utf8");
    return /^\s*k8s\.io\/kubernetes (\S+)$/m.exec(text)?.[1];
  });
  expect(controlPlane).toMatch(/^v1\./);
  expect(nodes).toBe(controlPlane);
});
