import { afterEach, expect, test, vi } from "vitest";
import { needsGuest, whyNoProxy } from "./requirements.ts";

afterEach(() => vi.unstubAllEnvs());

test.skipIf(!needsGuest("ipvs"))(
  "a proxy that needs IPVS is refused without IPVS and without a kernel for a guest",
  () => {
    vi.stubEnv("KPNG_GUEST_KERNEL", undefined);
    expect(whyNoProxy("ipvs", { isRecovery: false })).toMatch(/needs IPVS .*KPNG_GUEST_KERNEL/);
  },
);

test.skipIf(!needsGuest("ipvs"))("the recovery test does not run in a guest", () => {
  vi.stubEnv("KPNG_GUEST_KERNEL", "/bin/true");
  expect(whyNoProxy("ipvs", { isRecovery: true })).toMatch(/needs IPVS in the kernel of this machine/);
});

test("a proxy that needs no IPVS never runs in a guest", () => {
  expect(needsGuest("nft")).toBe(false);
  expect(whyNoProxy("kube-proxy", { isRecovery: true })).toBeUndefined();
});
