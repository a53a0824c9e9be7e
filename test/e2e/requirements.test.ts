import { afterEach, expect, test, vi } from "vitest";
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
