import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { dial } from "@kpng/process/connection/dial.ts";
import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { readRecording } from "@kpng/source/replay/recording.ts";
import { replaySource } from "@kpng/source/replay/replay-source.ts";
import { endpoint, node, service, slice } from "@kpng/source/testing/build.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { InspectCommand } from "./client.ts";
import { bugReportCommand, recordCommand } from "./record.ts";
import { joinReplicas } from "./replicas.ts";

let folder: string;
let store: Store;
let server: TestServer;
const stop = new AbortController();

beforeEach(async () => {
  folder = temporaryFolder();
  store = new Store();
  server = await serveStore(store);
  store.replace({
    services: [service()],
    slices: [slice([endpoint("10.1.0.1", { podName: "web-1" })])],
    nodes: [node("n1")],
  });
});

afterEach(() => server.stop());

/** Starts a recording of the server. */
function begin(command: InspectCommand, path: string, signal = stop.signal, api = server.address): Promise<void> {
  const replicas = [{ api, transport: dial({ api }) }];
  const options = { output: path, for: 600_000 };
  return command.run({ replicas, ...joinReplicas(replicas), words: [], options, signal });
}

/** Records while `whileRecording` runs. */
async function record(path: string, whileRecording: () => Promise<void>): Promise<void> {
  const stopRecording = new AbortController();
  const recorded = begin(recordCommand, path, stopRecording.signal);
  await expect.poll(() => server.subscribers.open.size).toBe(1);
  await expect.poll(() => subscriber()?.receivedRevision).toBe(store.snapshot.revision);
  await whileRecording();
  stopRecording.abort();
  await recorded;
}

function subscriber() {
  return [...server.subscribers.open][0];
}

async function change(apply: () => void): Promise<void> {
  apply();
  await expect.poll(() => subscriber()?.receivedRevision).toBe(store.snapshot.revision);
}

/** Replays a recording without delays. */
async function replay(path: string, logged: string[] = []): Promise<Store> {
  const replayed = new Store();
  const log = createLog("error", (line) => logged.push(line));
  void replaySource({ path, speed: 0, sink: replayed, log, health: new Health() }).run(stop.signal);
  await replayed.next(0, stop.signal);
  return replayed;
}

const contentOf = ({ snapshot }: Store) => ({
  services: [...snapshot.services.keys()].sort(),
  addresses: [...snapshot.slicesByService.values()].flatMap((slices) =>
    slices.flatMap(({ endpoints }) => endpoints.flatMap(({ addresses }) => addresses.v4)),
  ),
  nodes: [...snapshot.nodes.keys()].sort(),
});

test.each(["r.jsonl", "r.jsonl.gz"])("a replay of %s yields the recorded state and changes", async (name) => {
  const path = join(folder, name);
  await record(path, async () => {
    await change(() => store.apply([{ kind: "put-service", service: service({ name: "later" }) }]));
    await change(() => store.apply([{ kind: "put-slice", slice: slice([endpoint("10.1.0.2")]) }]));
    await change(() => store.apply([{ kind: "delete-service", key: "ns/later" }]));
  });
  const replayed = await replay(path);
  expect(contentOf(replayed)).toEqual(contentOf(store));
  expect(replayed.snapshot.revision).toBe(4);
});

test("a bug report that is interrupted has its rows", async () => {
  const path = join(folder, "r.jsonl.gz");
  const interrupt = new AbortController();
  const reported = begin(bugReportCommand, path, interrupt.signal);
  await expect.poll(() => subscriber()?.receivedRevision).toBe(store.snapshot.revision);
  interrupt.abort();
  // The process does not wait for an answer after Ctrl-C.
  await server.stop();
  await reported;
  const kinds = readRecording(path).lines.flatMap((line) => (line.kind === "rows" ? [line.of] : []));
  expect(kinds).toEqual(["subscribers", "changes", "versions", "nodes", "findings"]);
});

test("a recording whose watcher ends is kept, and the error is reported", async () => {
  const path = join(folder, "r.jsonl.gz");
  const recorded = begin(recordCommand, path);
  const failed = expect(recorded).rejects.toThrow(/ended the stream|unavailable|aborted/);
  await expect.poll(() => subscriber()?.receivedRevision).toBe(store.snapshot.revision);
  await change(() => store.apply([{ kind: "put-service", service: service({ name: "later" }) }]));
  await server.stop();
  await failed;
  expect(contentOf(await replay(path))).toEqual(contentOf(store));
  expect(readdirSync(folder)).toEqual(["r.jsonl.gz"]);
});

test("a recording that fails before it has the state leaves no file", async () => {
  const none = `unix://${join(folder, "none.sock")}`;
  await expect(begin(recordCommand, join(folder, "r.jsonl.gz"), stop.signal, none)).rejects.toThrow(/ENOENT/);
  expect(readdirSync(folder)).toEqual([]);
});

test("a replay of a truncated file yields what is there, and the log says that the end is missing", async () => {
  const path = join(folder, "r.jsonl.gz");
  const before = contentOf(store);
  await record(path, () => change(() => store.apply([{ kind: "delete-service", key: "ns/web" }])));
  writeFileSync(path, readFileSync(path).subarray(0, -12));
  const logged: string[] = [];
  expect(contentOf(await replay(path, logged))).toEqual(before);
  expect(logged.join("")).toContain("the recording is truncated: its end is missing");
});

test("the error for a missing or truncated recording names the file", async () => {
  expect(() => readRecording(join(folder, "none"))).toThrow(/BAD_INPUT.*cannot read the recording .*none/);
  const path = join(folder, "r.jsonl.gz");
  await record(path, async () => undefined);
  writeFileSync(path, readFileSync(path).subarray(0, 100));
  expect(() => readRecording(path)).toThrow(/BAD_INPUT.*r\.jsonl\.gz is not a recording/);
});
