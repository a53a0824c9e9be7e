import { createServer } from "node:net";
import { join } from "node:path";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { ApplyState } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { node, service } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { expect, onTestFinished, test, vi } from "vitest";
import { inspectClient, type Replica, readPages, withDeadline } from "./client.ts";
import { askAll, joinReplicas } from "./replicas.ts";

/** Starts a watcher of 25 nodes that has seen four changes. */
async function startReplica(): Promise<Replica> {
  const store = new Store();
  const server = await serveStore(store);
  onTestFinished(() => server.stop());
  store.replace({ services: [service()], slices: [], nodes: Array.from({ length: 25 }, (_, at) => node(`n${at}`)) });
  for (const name of ["a", "b", "c"]) store.apply([{ kind: "put-service", service: service({ name }) }]);
  return { api: server.address, transport: dial({ api: server.address }) };
}

/** Starts a server that accepts connections and never answers. */
async function startFrozenReplica(): Promise<Replica> {
  const path = join(temporaryFolder(), "frozen.sock");
  const server = createServer((client) => client.on("error", () => undefined).resume());
  await new Promise<void>((resolve) => server.listen(path, resolve));
  onTestFinished(() => void server.close());
  return { api: "frozen", transport: dial({ api: `unix://${path}` }) };
}

test("a replica that hangs does not hold back the answers of the others, and is reported", async () => {
  const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  onTestFinished(() => stderr.mockRestore());
  const replicas = withDeadline([await startFrozenReplica(), await startReplica()], 1_000);
  const answers = await askAll(replicas, (client) => client.getStatus({}));
  expect(answers).toMatchObject([{ reason: expect.stringContaining("timed out") }, { value: {} }]);
  expect(await joinReplicas(replicas).client.listServices({})).toHaveProperty("services.length", 4);
  expect(stderr.mock.calls.join("")).toContain("warning: frozen does not answer: request failed");
});

test("a replica that does not answer is asked once, not for each page of a list", async () => {
  const stderr = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  onTestFinished(() => stderr.mockRestore());
  let askedCount = 0;
  const unary: Transport["unary"] = async () => {
    askedCount += 1;
    throw new ConnectError("timed out", Code.DeadlineExceeded);
  };
  const answering = await startReplica();
  const { client } = joinReplicas([{ api: "silent", transport: { ...answering.transport, unary } }, answering]);
  expect(await readPages(client.listServices, { pageSize: 1 }, ({ services }) => services)).toHaveLength(4);
  expect(askedCount).toBe(1);
});

test("a watcher that hangs is reported, also if it is the only one", async () => {
  const [only] = withDeadline([await startFrozenReplica()], 100);
  if (only === undefined) throw new Error("no replica");
  await expect(inspectClient(only.transport).getStatus({})).rejects.toThrow("timed out");
});

test("the joined answer has at most as many changes as were requested", async () => {
  const { client: joined } = joinReplicas([await startReplica(), await startReplica()]);
  expect((await joined.listChanges({ pageSize: 2 })).changes).toHaveLength(2);
});

test("all pages of a list are read", async () => {
  const { listNodes } = inspectClient((await startReplica()).transport);
  expect(await readPages(listNodes, { pageSize: 10 }, ({ nodes }) => nodes)).toHaveLength(25);
});

test("all nodes are read in pages of the maximum size, because each replica must send all states", async () => {
  const one = await startReplica();
  let callCount = 0;
  const unary: Transport["unary"] = (...call) => {
    callCount += 1;
    return one.transport.unary(...call);
  };
  const { client: joined } = joinReplicas([
    { api: "one", transport: { ...one.transport, unary } },
    await startReplica(),
  ]);
  const { nodes } = await joined.listNodes({ states: [ApplyState.ABSENT], pageSize: 10 });
  expect([nodes.length, callCount]).toEqual([25, 1]);
});
