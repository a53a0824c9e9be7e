import { createHash } from "node:crypto";
import { type FileHandle, rename, rm } from "node:fs/promises";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import {
  NodeSchema,
  type OpItem,
  OpItemSchema,
  ServiceSchema,
  Set as WireSet,
} from "@kpng/model/gen/localv1/api_pb.ts";
import type { NodeView, ServiceItem, ViewChange } from "@kpng/model/node-view.ts";
import { decodeLocalOp } from "@kpng/model/wire/decode-local.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-bytes.ts";
import { encodeNode } from "@kpng/model/wire/node-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { createOwnFile, openOwnFile } from "@kpng/process/regular-file.ts";
import { memoryLimitBytes } from "@kpng/process/run/memory-limit.ts";
import { nextTurn } from "../sync/next-turn.ts";
import { BackendError } from "../types/backend-error.ts";
import { decodeHeader, formatPosition, type ViewHeader, viewFormat } from "./view-header.ts";

/**
 * The view of a node (its Services and endpoints) in a file. `ViewKeeper` writes it after syncs; `loadView` reads it
 * when a backend starts, to work from it until a watcher answers. This file knows only the format: `ViewKeeper` decides
 * when a view is written, `loadView` whether it may be used.
 *
 * *Shape:* a line of JSON (`ViewHeader`), the operations of a localv1 stream that put the view, each preceded by its
 * length, and the SHA-256 of everything before it (32 bytes). The decoder of the stream, which accepts messages of
 * older watchers, therefore also accepts older files.
 */
export interface SavedView {
  readonly header: ViewHeader;
  /** Puts the whole view. */
  readonly changes: readonly ViewChange[];
}

const digestBytes = 32;
const servicesPerTurn = 100;

/**
 * Writes a view to a draft beside `path` and renames the draft to `path`: a reader finds the old file or the new one,
 * also after a crash. The event loop gets turns meanwhile.
 *
 * Errors: those of the file system; the old file stays.
 */
export async function writeViewFile(path: string, header: ViewHeader, view: NodeView): Promise<void> {
  // The draft always has the same name: a killed process leaves at most one, and the next write replaces it.
  const draft = `${path}.tmp`;
  try {
    const file = await createOwnFile(draft);
    try {
      await writeAll(file, header, view);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    // On a full disk, the incomplete draft would take the space that the next attempt needs.
    await rm(draft, { force: true }).catch(() => undefined);
    throw error;
  }
}

async function writeAll(file: FileHandle, header: ViewHeader, view: NodeView): Promise<void> {
  const hash = createHash("sha256");
  const put = async (bytes: Uint8Array): Promise<void> => {
    hash.update(bytes);
    await file.writeFile(bytes);
  };
  const position = header.position && formatPosition(header.position);
  await put(Buffer.from(`${JSON.stringify({ ...viewFormat, ...header, position })}\n`));
  let writer = new BinaryWriter();
  let count = 0;
  for (const item of encodeItems(view)) {
    writer.bytes(toBinary(OpItemSchema, create(OpItemSchema, { Op: { case: "Set", value: item } })));
    if (++count % servicesPerTurn !== 0) continue;
    await put(writer.finish());
    writer = new BinaryWriter();
    await nextTurn();
  }
  await put(writer.finish());
  await file.writeFile(hash.digest());
}

type Item = MessageInitShape<typeof import("@kpng/model/gen/localv1/api_pb.ts").ValueSchema>;

function* encodeItems({ node, services }: NodeView): Generator<Item, void, void> {
  if (node !== undefined) {
    yield { Ref: { Set: WireSet.NodesSet, Path: node.name }, Bytes: toBinary(NodeSchema, encodeNode(node)) };
  }
  for (const [path, { service, portHasEndpoints, endpoints }] of services) {
    const extension = portHasEndpoints === undefined ? undefined : { portHasEndpoints };
    const bytes = toBinary(ServiceSchema, encodeService(service, extension));
    yield { Ref: { Set: WireSet.ServicesSet, Path: path }, Bytes: bytes };
    for (const endpoint of endpoints) {
      const Ref = { Set: WireSet.EndpointsSet, Path: `${path}/${endpoint.key}` };
      yield { Ref, Bytes: endpointBytes(endpoint, service, true) };
    }
  }
}

/** Maximum size of a saved view, in bytes: a quarter of the memory. 250 000 endpoints take 35 MB. */
function maxFileBytes(): number {
  return memoryLimitBytes() / 4;
}

/**
 * Reads a file that {@link writeViewFile} wrote; undefined if it does not exist. Services that `only` rejects are left
 * out with their endpoints, which are not even decoded.
 *
 * Errors: STATE_FILE if the file cannot be read, is incomplete, or has another format.
 */
export async function readViewFile(path: string, only?: ServiceFilter): Promise<SavedView | undefined> {
  let bytes: Buffer;
  try {
    await using file = await openOwnFile(path, maxFileBytes());
    bytes = await file.readFile();
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw new BackendError("STATE_FILE", `${path} cannot be read`, { cause });
  }
  try {
    return decodeFile(bytes, only);
  } catch (cause) {
    throw new BackendError("STATE_FILE", `${path} (${bytes.length} bytes) is not a valid saved view`, { cause });
  }
}

/** Returns true for a Service that should be loaded. */
export type ServiceFilter = (item: ServiceItem) => boolean;

function decodeFile(bytes: Buffer, only: ServiceFilter = () => true): SavedView {
  const content = bytes.subarray(0, Math.max(0, bytes.length - digestBytes));
  const digest = createHash("sha256").update(content).digest();
  if (!digest.equals(bytes.subarray(content.length)))
    throw new Error("the checksum does not match: the file is incomplete or was changed");
  const headerEnd = content.indexOf("\n");
  const header = decodeHeader(content.toString("utf8", 0, headerEnd));
  const changes: ViewChange[] = [];
  /** Keys of the Services that `only` rejects. The file has each Service before its endpoints. */
  const leftOut = new Set<string>();
  const reader = new BinaryReader(content.subarray(headerEnd + 1));
  while (reader.pos < reader.len) {
    const item = fromBinary(OpItemSchema, reader.bytes());
    if (leftOut.has(serviceOfEndpoint(item))) continue;
    const op = decodeLocalOp(item);
    if (op.kind !== "change") continue;
    if (op.change.kind === "put-service" && !only(op.change.item)) leftOut.add(op.change.key);
    else changes.push(op.change);
  }
  return { header, changes };
}

/** Returns the key of the Service that an endpoint belongs to; "" if the item is not an endpoint. */
function serviceOfEndpoint({ Op: op }: OpItem): string {
  const ref = op.case === "Set" ? op.value.Ref : undefined;
  return ref?.Set === WireSet.EndpointsSet ? ref.Path.slice(0, ref.Path.lastIndexOf("/")) : "";
}
