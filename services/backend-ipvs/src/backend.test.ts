import { expect, test } from "vitest";
import { ipvsBackend, readIpvsSettings } from "./backend.ts";

test("CIDRs of other programs are canonical, and anything else is refused", () => {
  const read = (text: string) => readIpvsSettings({ ipvsExcludeCidrs: [text] }).excludedCIDRs;
  expect(read("fd00:0::/8")).toEqual(["fd00::/8"]);
  expect(() => read("10.0.0.0/40")).toThrow("is not a CIDR");
});

test("a scheduler has the name of a kernel module, and anything else is refused", () => {
  const { parse } = ipvsBackend.options.find(({ flags }) => flags.startsWith("--ipvs-scheduler")) ?? {};
  expect(parse?.("mh", undefined)).toBe("mh");
  expect(() => parse?.("least connections", undefined)).toThrow("is not the name of a scheduler");
});
