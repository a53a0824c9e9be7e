import { writeFileSync } from "node:fs";
import { watchView } from "@kpng/backend-kit/receive/follow-view.ts";
import { defaultViewBytes } from "@kpng/backend-kit/state/item-limits.ts";
import { ViewState } from "@kpng/backend-kit/state/view-state.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { makeCluster } from "@kpng/source/simulate/synthetic.ts";
import { formatState } from "@kpng/watcher/state-file/format-state.ts";
import { expect, test } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { kpngMain, usePrograms } from "./programs.ts";

const programs = usePrograms();
const mebibyte = 1024 * 1024;

/** The heap limit that the sizing guide names for 250 000 endpoints, in MiB. */
const heapMebibytes = 1_536;
const cluster = { services: 2_500, endpoints: 100, nodes: 1_000 };

test("a watcher with the memory of the sizing guide serves a view of 250 000 endpoints, and a backend accepts it", {
  timeout: 400_000,
}, async () => {
  const [port = 0, healthPort = 0] = await freePorts(2);
  const path = programs.at("state.json");
  // The file source refuses YAML of this size.
  writeFileSync(path, formatState(makeCluster(cluster), "json"));
  const options = ["--listen", `tcp://127.0.0.1:${port}`, "--healthz-bind-address", `127.0.0.1:${healthPort}`];
  programs.start(kpngMain, ["file", "-i", path, "to-api", ...options], {
    NODE_OPTIONS: `--max-old-space-size=${heapMebibytes}`,
  });
  const isReady = async (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${healthPort}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  await expect.poll(isReady, { timeout: 240_000, interval: 200 }).toBe(true);
  const nodeName = "node-7";
  const view = {
    transport: dial({ api: `127.0.0.1:${port}` }),
    nodeName,
    maxViewBytes: defaultViewBytes(512 * mebibyte),
  };
  const stop = new AbortController();
  const { value } = await watchView(new ViewState(nodeName), view, stop.signal).next();
  stop.abort();
  const services = [...(value?.view.services ?? [])];
  const endpoints = services.flatMap(([service, held]) => held.endpoints.map(({ key }) => `${service}/${key}`));
  expect(new Set(endpoints).size).toBe(cluster.services * cluster.endpoints);
});
