import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { create, type DescMessage, fromBinary, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { sizeDelimitedEncode } from "@bufbuild/protobuf/wire";
import {
  ClusterInfoSchema,
  EndpointInfoSchema,
  NodeInfoSchema,
  ServiceInfoSchema,
} from "@kpng/model/gen/globalv1/api_pb.ts";
import {
  EndpointSchema,
  NodeSchema,
  type OpItem,
  OpItemSchema,
  ServiceSchema,
  Set as SetName,
  WatchReqSchema,
} from "@kpng/model/gen/localv1/api_pb.ts";
import { readGood } from "@kpng/source/file/testing/texts.ts";
import { Store } from "@kpng/watcher/store/store.ts";
import { serveStore } from "@kpng/watcher/testing/serve-store.ts";
import { expect, test } from "vitest";
import { GrpcJsWatch } from "./grpc-js-client.ts";

// The test vectors of the protocol, for authors of clients and servers: see proto/vectors/README.md. KPNG_WRITE_VECTORS=1
// writes them.

const folder = "proto/vectors";
const isWriting = process.env.KPNG_WRITE_VECTORS === "1";

const vectors = {
  "local-n1": ["local", { NodeName: "n1" }],
  "local-elsewhere": ["local", { NodeName: "elsewhere" }],
  "extended-n1": ["local", { NodeName: "n1", Features: ["Extended", "NodeItem"] }],
  global: ["global", {}],
} as const satisfies Readonly<Record<string, readonly ["local" | "global", JsonValue]>>;

const read = (state: string) => readGood(readFileSync(join(folder, state), "utf8")).objects;

/** What a Sync says beyond itself differs between servers. */
function withoutSyncFields(operation: OpItem): OpItem {
  return operation.Op.case === "Sync" ? create(OpItemSchema, { Op: { case: "Sync", value: {} } }) : operation;
}

const messages: Readonly<Partial<Record<SetName, DescMessage>>> = {
  [SetName.ServicesSet]: ServiceSchema,
  [SetName.EndpointsSet]: EndpointSchema,
  [SetName.NodesSet]: NodeSchema,
  [SetName.GlobalServiceInfos]: ServiceInfoSchema,
  [SetName.GlobalEndpointInfos]: EndpointInfoSchema,
  [SetName.GlobalNodeInfos]: NodeInfoSchema,
  [SetName.GlobalClusterInfos]: ClusterInfoSchema,
};

/** An operation as JSON, with the message of a Set in place of its bytes. */
function toText(operation: OpItem): string {
  const json = toJson(OpItemSchema, operation);
  const { Op: op } = operation;
  if (op.case !== "Set") return JSON.stringify(json);
  const schema = messages[op.value.Ref?.Set ?? SetName.UnknownSet];
  if (schema === undefined) throw new Error(`no message for the Set of ${JSON.stringify(json)}`);
  const { Ref } = (json as { readonly Set: { readonly Ref: JsonValue } }).Set;
  return JSON.stringify({ Set: { Ref, Value: toJson(schema, fromBinary(schema, op.value.Bytes)) } });
}

function compare(name: string, operations: readonly OpItem[]): void {
  const [text, binary] = [join(folder, `${name}.jsonl`), join(folder, `${name}.bin`)];
  const lines = operations.map((operation) => `${toText(operation)}\n`).join("");
  const bytes = Buffer.concat(operations.map((operation) => sizeDelimitedEncode(OpItemSchema, operation)));
  if (isWriting) {
    writeFileSync(text, lines);
    writeFileSync(binary, bytes);
  }
  expect(existsSync(text), `${text}: KPNG_WRITE_VECTORS=1 writes it`).toBe(true);
  expect(lines).toBe(readFileSync(text, "utf8"));
  expect(bytes.equals(readFileSync(binary)), binary).toBe(true);
}

test.each(Object.entries(vectors))("a watcher sends the vector %s", async (name, [set, request]) => {
  const store = new Store();
  store.replace(read("1.yaml"));
  const server = await serveStore(store);
  const message = set === "global" ? {} : fromJson(WatchReqSchema, request);
  const watch = new GrpcJsWatch(server.address, set);
  try {
    compare(`${name}.1`, (await watch.ask(message)).map(withoutSyncFields));
    const next = watch.ask(message);
    store.replace(read("2.yaml"));
    compare(`${name}.2`, (await next).map(withoutSyncFields));
  } finally {
    watch.close();
    await server.stop();
  }
});
