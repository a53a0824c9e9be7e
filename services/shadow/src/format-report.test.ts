import { makeFormatObject } from "@kpng/backend-kit/proxy/object-format.ts";
import { expect, test } from "vitest";
import type { Difference } from "./difference.ts";
import { formatChange, formatSummary } from "./format-report.ts";

const json = await makeFormatObject("json");
const time = new Date("2026-11-21T10:00:00Z");
const lost: Difference = {
  servicePort: "ns/web:http",
  family: "v6",
  addressKind: "cluster IP",
  protocol: "tcp",
  address: "fd00::a",
  port: 80,
  sender: "pod",
  source: "fd00:1::1",
  inInterface: "cbr0",
  kubeProxy: ["[fd00:1::1]:8080", "[fd00:2::1]:8080", "[fd00:2::2]:8080", "[fd00:2::3]:8080", "[fd00:2::4]:8080"],
  kpng: ["[fd00:1::1]:8080"],
};
const compared = { packets: 12, services: 3 };

test("a difference is a row, with what only one side does first", () => {
  expect(formatChange(undefined, time, { appeared: [lost], gone: [], present: [lost] }, compared)).toBe(
    `2026-11-21T10:00:00.000Z  1 packet of 1 service port goes another way; 12 packets of 3 Services compared
   SERVICE PORT  TO                           FROM           KUBE-PROXY                                                                      KPNG
+  ns/web:http   cluster IP [fd00::a]:80/tcp  pod fd00:1::1  [fd00:2::1]:8080, [fd00:2::2]:8080, [fd00:2::3]:8080, [fd00:2::4]:8080, 1 more  [fd00:1::1]:8080
`,
  );
});

test("no difference is said too, and what is gone", () => {
  const text = formatChange(undefined, time, { appeared: [], gone: [lost], present: [] }, compared);
  expect(text.split("\n")[0]).toBe("2026-11-21T10:00:00.000Z  no difference: 12 packets of 3 Services compared");
  expect(text.split("\n")[2]).toMatch(/^- {2}ns\/web:http /);
});

test("many rows are cut, and JSON has them all, an object a line", () => {
  const many = Array.from({ length: 50 }, (_, at) => ({ ...lost, port: at }));
  const change = { appeared: many, gone: [], present: many };
  expect(formatChange(undefined, time, change, compared)).toContain(
    "\n… and 20 rows more; --output json has them all\n",
  );
  const line = formatChange(json, time, change, compared);
  expect(line.indexOf("\n")).toBe(line.length - 1);
  const { appeared, ...rest } = JSON.parse(line);
  expect(appeared).toEqual(many);
  expect(rest).toEqual({ time: time.toISOString(), differences: 50, packets: 12, services: 3, gone: [] });
});

test("the end is summed up", () => {
  const summary = { looks: 1, told: 4, present: [], elapsedMs: 61_400 };
  expect(formatSummary(undefined, time, summary)).toBe(
    "2026-11-21T10:00:00.000Z  end after 1 look in 61 s: no difference now, 4 told in all\n",
  );
  expect(JSON.parse(formatSummary(json, time, summary)).summary).toEqual({
    ...{ looks: 1, told: 4, differences: 0, elapsedSeconds: 61, present: [] },
  });
});
