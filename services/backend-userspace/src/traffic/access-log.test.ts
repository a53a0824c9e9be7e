import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { until } from "../testing/running-service.ts";
import { AccessLog, type AccessRecord } from "./access-log.ts";

const record: AccessRecord = {
  ...{ service: "default/web", protocol: "TCP", client: "10.0.0.7:40312", endpoint: "10.0.1.7:8080" },
  ...{ end: "closed", durationMs: 3, bytesFromClient: 1, bytesToClient: 2 },
};

test("after an error the reason is reported, and lines are written again when the file can be opened", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-access-log-"));
  const path = join(folder, "later", "access.log");
  const reasons: string[] = [];
  const log = new AccessLog(path, (reason) => reasons.push(reason));
  log.write(record);
  await until("the error", () => reasons.length > 0);
  expect(reasons).toEqual([expect.stringMatching(/^ENOENT: .*; opened again after 1 s$/)]);
  mkdirSync(join(folder, "later"));
  await until("a line", () => {
    log.write(record);
    return existsSync(path) && readFileSync(path, "utf8").includes("\n");
  });
  const [line = ""] = readFileSync(path, "utf8").split("\n");
  expect(JSON.parse(line)).toMatchObject(record);
  expect(reasons.length).toBe(1);
  rmSync(folder, { recursive: true });
});
