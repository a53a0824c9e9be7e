import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { type FileHandle, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import type { Position } from "@kpng/model/forward.ts";
import { NodeSchema, OpItemSchema, ServiceSchema, Set as SetName } from "@kpng/model/gen/localv1/api_pb.ts";
import type { NodeView } from "@kpng/model/node-view.ts";
import { endpointBytes } from "@kpng/model/wire/endpoint-message.ts";
import { decodeLocalOp, encodeNode } from "@kpng/model/wire/local-message.ts";
import { encodeService } from "@kpng/model/wire/service-message.ts";
import { ViewState } from "../state/view-state.ts";
import { BackendError } from "../types/backend-error.ts";
import type { ViewUpdate } from "../types/sync-update.ts";

/**
 * The view of a node (its Services and endpoints) in a file.
 *
 * *Shape:* a line of JSON (`ViewHeader`), then the localv1 stream operations that put the view, each preceded by its
 * length, then the SHA-256 hash (32 bytes) of everything before it. Because the stream decoder accepts messages from
 * older watchers, it also accepts older files.
 */
interface SavedView {
  readonly header: ViewHeader;
  readonly update: ViewUpdate;
}

export interface ViewPlace {
  readonly folder: string;
  readonly nodeName: string;
  readonly serviceProxyName: string;
}

/** Returns the path of the saved view; each service-proxy-name has its own file. */
export function viewPath({ folder, serviceProxyName }: ViewPlace): string {
  // A label value is a valid file name; the encoding turns any other name into one.
  return join(folder, serviceProxyName === "" ? "view" : `view.${encodeURIComponent(serviceProxyName)}`);
}

const digestBytes = 32;

/** Services, endpoints and nodes that are written between two turns of the event loop. */
const itemsPerTurn = 100;

/**
 * Writes a view to a draft beside `path` and renames the draft to `path`: a reader finds the old file or the new one,
 * even after a crash. The event loop gets turns during the write.
 *
 * Errors: file-system errors; the old file then remains.
 */
export async function writeViewFile(path: string, header: ViewHeader, view: NodeView): Promise<void> {
  // The draft always has the same name, so that a killed process leaves at most one, which the next write replaces.
  const draft = `${path}.tmp`;
  try {
    const file = await open(draft, "w", 0o600);
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
    if (++count % itemsPerTurn !== 0) continue;
    await put(writer.finish());
    writer = new BinaryWriter();
    await nextTurn();
  }
  await put(writer.finish());
  await file.writeFile(hash.digest());
}

type Item = MessageInitShape<typeof import("@kpng/model/gen/localv1/api_pb.ts").ValueSchema>;

/**
 * Yields the items of a view, each Service before its endpoints, as `ViewState` requires. The bytes of an item are
 * valid only until the next one, see `endpointBytes`.
 */
function* encodeItems({ node, services }: NodeView): Generator<Item, void, void> {
  if (node !== undefined) {
    yield { Ref: { Set: SetName.NodesSet, Path: node.name }, Bytes: toBinary(NodeSchema, encodeNode(node)) };
  }
  for (const [path, { service, portHasEndpoints, endpoints }] of services) {
    const extension = portHasEndpoints && { portHasEndpoints };
    const bytes = toBinary(ServiceSchema, encodeService(service, extension));
    yield { Ref: { Set: SetName.ServicesSet, Path: path }, Bytes: bytes };
    for (const endpoint of endpoints) {
      const Ref = { Set: SetName.EndpointsSet, Path: `${path}/${endpoint.key}` };
      yield { Ref, Bytes: endpointBytes(endpoint, service, true) };
    }
  }
}

/**
 * Reads the view that {@link writeViewFile} saved for this node; undefined if there is none. If the file dates from
 * another boot than `bootId`, the view omits the endpoints on this node, whose pods are gone or have new addresses.
 *
 * Errors: STATE_FILE if the file cannot be read, is incomplete, has another format, or belongs to another node.
 */
export async function loadView(place: ViewPlace, bootId = readBootId()): Promise<SavedView | undefined> {
  const path = viewPath(place);
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw new BackendError("STATE_FILE", `${path} cannot be read`, { cause });
  }
  let saved: SavedView;
  try {
    saved = decodeFile(bytes, bootId);
  } catch (cause) {
    throw new BackendError("STATE_FILE", `${path} (${bytes.length} bytes) is not a valid saved view`, { cause });
  }
  const { nodeName } = saved.header;
  if (nodeName === place.nodeName) return saved;
  throw new BackendError("STATE_FILE", `${path} is the view of node ${nodeName}, not of ${place.nodeName}`);
}

function decodeFile(bytes: Buffer, bootId: string): SavedView {
  const content = bytes.subarray(0, Math.max(0, bytes.length - digestBytes));
  const digest = createHash("sha256").update(content).digest();
  if (!digest.equals(bytes.subarray(content.length)))
    throw new Error("the checksum does not match: the file is incomplete or was changed");
  const headerEnd = content.indexOf("\n");
  const header = decodeHeader(content.toString("utf8", 0, headerEnd));
  const isAfterReboot = header.bootId !== bootId;
  const state = new ViewState(header.nodeName);
  state.stage(create(OpItemSchema, { Op: { case: "Reset", value: {} } }));
  const reader = new BinaryReader(content.subarray(headerEnd + 1));
  while (reader.pos < reader.len) {
    const op = fromBinary(OpItemSchema, reader.bytes());
    const decoded = decodeLocalOp(op);
    const isGone =
      decoded.kind === "change" && decoded.change.kind === "put-endpoint" && decoded.change.endpoint.isOnNode;
    if (!isAfterReboot || !isGone) state.stage(op, decoded);
  }
  const update = state.commit(state.next(), { revision: 0n, instance: "" });
  return { header, update: { ...update, isFromDisk: true, isAfterReboot } };
}

interface ViewHeader {
  readonly nodeName: string;
  /** *Shape:* `2026-01-31T12:00:00.000Z`. */
  readonly savedAt: string;
  /** Boot during which the view was saved; see `readBootId`. "" if unknown. */
  readonly bootId: string;
  /** Position of the view, or a later position; undefined if unknown. */
  readonly position?: Position | undefined;
}

/** A program with another version ignores the file and replaces it as soon as a watcher answers. */
const viewFormat = { format: "kpng-view", version: 1 } as const;

function decodeHeader(json: string): ViewHeader {
  const { format, version, nodeName, savedAt, bootId, position } = JSON.parse(json) as Record<string, unknown>;
  if (format !== viewFormat.format || version !== viewFormat.version)
    throw new Error(`the file has format ${format}, version ${version}: expected ${Object.values(viewFormat).join()}`);
  return {
    nodeName: String(nodeName),
    savedAt: String(savedAt),
    bootId: String(bootId),
    position: parsePosition(position),
  };
}

/** A string, because JSON has no 64-bit integers. *Shape:* `kube:9f… 100 205 198`. */
function formatPosition({ source, services, slices, nodes }: Position): string {
  return [source, services, slices, nodes].join(" ");
}

function parsePosition(field: unknown): Position | undefined {
  if (typeof field !== "string" || !/^\S+( \d+){3}$/.test(field)) return undefined;
  const [source = "", ...numbers] = field.split(" ");
  const [services = 0n, slices = 0n, nodes = 0n] = numbers.map(BigInt);
  // `current` counts only in offered states, so it is not saved.
  return { source, services, slices, nodes, current: { services, slices, nodes } };
}

const maxHeaderBytes = 4_096;

/** A backend that starts refuses states older than this position, even if it does not use the saved view. */
export async function readSavedPosition(place: ViewPlace): Promise<Position | undefined> {
  try {
    await using file = await open(viewPath(place));
    const { bytesRead, buffer } = await file.read(Buffer.alloc(maxHeaderBytes), 0, maxHeaderBytes, 0);
    const text = buffer.toString("utf8", 0, bytesRead);
    const header = decodeHeader(text.slice(0, text.indexOf("\n")));
    return header.nodeName === place.nodeName ? header.position : undefined;
  } catch {
    // The position only protects against older states; `loadView` reports what is wrong with the file.
    return undefined;
  }
}

/** Returns the identifier of the current boot of this machine; "" if it is unknown. */
export function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    // Without /proc, reboots are not noticed: "" always equals the saved "".
    return "";
  }
}
