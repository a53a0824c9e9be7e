import { existsSync } from "node:fs";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import { expect, test, vi } from "vitest";
import { applyNft, checkVersions } from "./run-nft.ts";

/** Checks versions beside a program nft that prints `said` and exits with `status`. */
function check(said: string, kernel: string, status = 0): Promise<string> {
  useScripts({ nft: `echo '${said}'; exit ${status}` });
  return checkVersions(kernel).then(() => "ok", String);
}

test.each([
  ["nftables v1.0.1 (Fearless Fosdick)", "5.13.0", "ok"],
  ["nftables v1.1.3 (Commodore Bullmoose #4)", "6.12.48+deb13-amd64", "ok"],
  ["nftables v2.0", "10.0.0-rc1", "ok"],
  ["nftables v1.0.0 (Fearless Fosdick)", "6.1.0", "nft is version 1.0.0; 1.0.1 or newer is needed"],
  ["nftables v0.9.8 (E.D.S.)", "6.1.0", "nft is version 0.9.8; 1.0.1 or newer is needed"],
  ["nftables v1.0.6 (Lester Gooch #5)", "5.12.19", "the kernel is version 5.12.19; 5.13.0 or newer is needed"],
  ["nftables v1.0.6 (Lester Gooch #5)", "4.19.0-27-amd64", "the kernel is version 4.19.0; 5.13.0 or newer is needed"],
  ["unknown", "6.1.0", 'nft is version "unknown"; 1.0.1 or newer is needed'],
])("%s with Linux %s: %s", async (said, kernel, expected) => {
  const text = await check(said, kernel);
  if (expected === "ok") expect(text).toBe("ok");
  else expect(text).toContain(`[NFT_UNSUPPORTED] ${expected}`);
});

test("an nft that fails is as unsupported as one that is too old", async () => {
  expect(await check("nftables v1.0.6 (Lester Gooch #5)", "6.1.0", 127)).toContain(
    "[NFT_UNSUPPORTED] nft --version failed",
  );
});

test("an nft that crashes is older than one that made a set of this node", async () => {
  useScripts({ nft: "kill -SEGV $$" });
  await expect(applyNft("")).rejects.toThrow("(killed by SIGSEGV): a set was made by a newer nft");
});

test.skipIf(!existsSync("/usr/sbin/nft"))("nft is found in /usr/sbin, which the PATH of `su` may lack", async () => {
  vi.stubEnv("PATH", "/nowhere");
  try {
    await checkVersions("6.1.0");
  } finally {
    vi.unstubAllEnvs();
  }
});
