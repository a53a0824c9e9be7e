import { expect, test } from "vitest";
import { timeoutSeconds } from "./commit/prepare-kernel.ts";
import { ipvsOptions } from "./ipvs-settings.ts";

test("a time limit of 0, which would end every run of a tool, is refused", () => {
  const limit = ipvsOptions.find(({ flags }) => flags.startsWith("--ipvs-timeout "));
  expect(() => limit?.parse?.("0", undefined)).toThrow("too short");
});

test("a timeout shorter than a second is a second, because 0 keeps the kernel's", () => {
  expect(timeoutSeconds({ tcpMs: 400, tcpFinMs: 0, udpMs: 90_000 })).toEqual(["1", "0", "90"]);
});
