import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect } from "node:http2";
import { createConnection } from "node:net";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { deleteOperation, nodeOperation } from "@kpng/backend-kit/plan/plan-message.ts";
import { type PlanBatch, PlanState } from "@kpng/backend-kit/plan/plan-task.ts";
import { inTurn, silence, startFakeWatcher } from "@kpng/backend-kit/testing/fake-watcher.ts";
import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import { putEndpoint, putService, reset, sync } from "@kpng/backend-kit/testing/ops.ts";
import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { PlanService, type WatchResponse } from "@kpng/model/gen/kpng/plan/v1/plan_pb.ts";
import { service, view } from "@kpng/model/testing/views.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { PlanWatch } from "./plan-server.ts";

const main = new URL("main.ts", import.meta.url);

/** What an operation is about. *Shape:* `service a/web`, `sync 7`. */
function describe({ operation }: WatchResponse): string {
  if (operation.case === "service" || operation.case === "delete") {
    return `${operation.case} ${operation.value.namespace}/${operation.value.name}`;
  }
  return operation.case === "sync" ? `sync ${operation.value.revision}` : `${operation.case}`;
}

const both = (what: string): readonly string[] => [what, what];

test("the plans are printed, and then each change", async () => {
  const first = [reset, putService("a/web"), putEndpoint("a/web/1"), sync(7n)];
  await using watcher = await startFakeWatcher(inTurn(first, [putService("a/new", "10.0.0.2"), sync(8n)]));
  const program = startProgram(main, ["--api", watcher.address, "--node-name", "n1"]);
  while (!program.stdout().endsWith('{"sync":{"revision":"8"}}\n')) await new Promise(setImmediate);
  program.stop();
  expect(await program.ended, program.stderr()).toBe(0);
  const lines = program.stdout().trimEnd().split("\n");
  expect(lines.map((line) => Object.keys(JSON.parse(line))[0])).toEqual([
    ...["reset", "node", "node", "service", "service", "sync"],
    ...["service", "service", "sync"],
  ]);
  expect(JSON.parse(lines[3] ?? "").service).toMatchObject({
    namespace: "a",
    name: "web",
    ports: [{ name: "a/web", protocol: "PROTOCOL_TCP", frontends: [{ address: "10.0.0.1", port: 80 }] }],
  });
});

test("clients of the socket get the whole state and then changes, and the socket ends with the program", async () => {
  const socket = join(temporaryFolder(), "plan.sock");
  const next = Promise.withResolvers<void>();
  await using watcher = await startFakeWatcher(async (request) => {
    if (request.index === 0) return [reset, putService("a/web"), sync(7n)];
    if (request.index > 1) return silence(request);
    await next.promise;
    return [putService("a/new", "10.0.0.2"), sync(8n)];
  });
  const program = startProgram(main, ["--api", watcher.address, "--node-name", "n1", "--socket", socket]);
  await watcher.untilReceived(2);
  // gRPC's C core names the path of a socket as the host, and the slashes make it one that no URL can have.
  const session = connect("http://localhost", { createConnection: () => createConnection(socket) });
  const path = "/kpng.plan.v1.PlanService/Watch";
  const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" };
  const odd = session.request({ ...headers, ":authority": "tmp%2Fplan.sock" });
  // An empty message: no flags, and a length of 0.
  odd.end(Buffer.alloc(5));
  expect((await once(odd, "response"))[0]).toMatchObject({ ":status": 200 });
  session.destroy();
  const watch = createClient(PlanService, dial({ api: `unix://${socket}` }))
    .watch({})
    [Symbol.asyncIterator]();
  const read = async (): Promise<readonly string[]> => {
    const seen: string[] = [];
    while (!seen.at(-1)?.startsWith("sync")) seen.push(describe((await watch.next()).value));
    return seen;
  };
  expect(await read()).toEqual(["reset", ...both("node"), ...both("service a/web"), "sync 7"]);
  next.resolve();
  expect(await read()).toEqual([...both("service a/new"), "sync 8"]);
  program.stop();
  expect(await program.ended, program.stderr()).toBe(0);
  await expect(watch.next()).rejects.toThrow();
  expect(existsSync(socket)).toBe(false);
});

test("a slow client gets the newest state of each Service once", async () => {
  const state = new PlanState();
  const stop = new AbortController();
  const watch = new PlanWatch(undefined);
  const operations = watch.operations(stop.signal);
  let revision = 0n;
  const change = (names: readonly string[], touched: readonly string[] | "all"): void => {
    const services = names.map((name, at) => service(name, { ips: [`10.96.0.${at + 1}`] }));
    const keys = touched === "all" ? touched : new Set(touched.map((name) => name as "a/b"));
    state.update("v4", familyPlan(view(services), nodePlan()), keys);
    watch.push(state.take(++revision) as PlanBatch, state);
  };
  const read = async (count: number): Promise<readonly string[]> => {
    const seen: string[] = [];
    while (seen.length < count) seen.push(describe((await operations.next()).value as WatchResponse));
    return seen;
  };
  change(["a/1", "a/2"], "all");
  expect(await read(2)).toEqual(["reset", "node"]);
  // The client has not read the rest yet.
  change(["a/1", "a/2", "a/3"], ["a/3"]);
  change(["a/1", "a/3"], ["a/2"]);
  change(["a/1"], ["a/3"]);
  expect(await read(3)).toEqual(["service a/1", "service a/2", "sync 1"]);
  expect(await read(3)).toEqual(["delete a/3", "delete a/2", "sync 4"]);
  change(["a/1", "a/4"], ["a/4"]);
  change(["a/1", "a/5"], "all");
  expect(await read(5)).toEqual(["reset", "node", "service a/1", "service a/5", "sync 6"]);
  stop.abort();
});

test("a batch that was not delivered is followed by the whole state", () => {
  const state = new PlanState();
  const plan = familyPlan(view([service("a/1")]), nodePlan());
  state.update("v4", plan, "all");
  expect(state.take(1n)).toMatchObject({ isWhole: true, operations: [nodeOperation(nodePlan()), {}] });
  expect(state.take(1n)).toBeUndefined();
  state.update("v4", plan, new Set(["a/2"]));
  expect(state.take(2n)).toEqual({ revision: 2n, isWhole: false, operations: [deleteOperation("a/2", "v4")] });
  state.invalidate();
  expect(state.take(2n)?.isWhole).toBe(true);
});
