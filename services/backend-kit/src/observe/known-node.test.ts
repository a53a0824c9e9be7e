import { view } from "@kpng/model/testing/views.ts";
import { Health } from "@kpng/process/health/health.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { createReadableLog } from "../testing/steps.ts";
import { KnownNode } from "./known-node.ts";

function start() {
  const { log, lines } = createReadableLog();
  const [health, metrics] = [new Health(), new Registry()];
  const node = new KnownNode({ nodeName: "n1", health, log, metrics });
  const report = async (isKnown: boolean, instance = "run") => {
    const known = view([]);
    node.report({ view: isKnown ? known : { ...known, node: undefined }, instance });
    const reason = health.parts.get("node")?.reason;
    return {
      isReady: health.isReady,
      reason,
      gauge: (await metrics.metrics()).match(/^kpng_backend_node_known (\d)/m)?.[1],
    };
  };
  return { report, lines };
}

test("a Node that the cluster does not have is logged once, and named in health and metrics without failing them", async () => {
  const { report, lines } = start();
  const unknown = { isReady: true, reason: "the cluster has no Node of this name: check --node-name", gauge: "0" };
  expect(await report(false)).toEqual(unknown);
  expect(await report(false)).toEqual(unknown);
  expect(lines).toMatchObject([{ level: "error", msg: "the cluster has no Node of this name", nodeName: "n1" }]);
  expect(await report(true)).toEqual({ isReady: true, reason: "", gauge: "1" });
});

test("a Go watcher sends no Nodes, so nothing is reported", async () => {
  const { report, lines } = start();
  expect(await report(false, "")).toEqual({ isReady: false, reason: undefined, gauge: "1" });
  expect(lines).toEqual([]);
});
