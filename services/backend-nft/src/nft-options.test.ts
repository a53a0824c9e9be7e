import { expect, test } from "vitest";
import { nftOptions } from "./nft-options.ts";

test("--nft-timeout 0s is refused, because no run of nft could end in that time", () => {
  const option = nftOptions.find(({ flags }) => flags.startsWith("--nft-timeout "));
  expect(() => option?.parse?.("0s", undefined)).toThrow("at least 1ms");
});
