import { readFileSync } from "node:fs";
import { join } from "node:path";
import { toJson } from "@bufbuild/protobuf";
import { type OpItem, OpItemSchema } from "@kpng/model/gen/localv1/api_pb.ts";
import { input, readGood } from "@kpng/source/file/testing/texts.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore, type TestServer } from "@kpng/watcher/testing/serve-store.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GrpcJsWatch } from "./grpc-js-client.ts";

/** Captures of the original KPNG for input.yaml, as protobuf JSON with one operation per line. */
const fixtures = "test/fixtures/kpng";

let server: TestServer;

beforeAll(async () => {
  const store = new Store();
  store.replace(readGood(input).objects);
  server = await serveStore(store);
});

afterAll(() => server.stop());

function capture(file: string): unknown[] {
  const lines = readFileSync(join(fixtures, file), "utf8").trim().split("\n");
  return lines.map((line) => JSON.parse(line));
}

async function stream(set: "local" | "global", request: object): Promise<unknown[]> {
  const watch = new GrpcJsWatch(server.address, set);
  try {
    return (await watch.ask(request)).map((op: OpItem) => toJson(OpItemSchema, op));
  } finally {
    watch.close();
  }
}

describe("our stream has the same operations, byte for byte, as the original's", () => {
  test.each([
    ["local-n1.jsonl", "n1"],
    ["local-n2.jsonl", "n2"],
    ["local-nX.jsonl", "nX"],
  ])("%s", async (file, NodeName) => {
    expect(await stream("local", { NodeName })).toEqual(capture(file));
  });

  test("global.jsonl, except the copies of endpoints that leaked from an index of its store", async () => {
    const withoutCopies = capture("global.jsonl").filter((op) => !/"default\|\|/.test(JSON.stringify(op)));
    expect(await stream("global", {})).toEqual(withoutCopies);
  });
});
