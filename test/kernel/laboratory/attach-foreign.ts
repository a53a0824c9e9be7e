// Acts as another project that has BPF programs at the hooks of kpng-ebpf: `node attach-foreign.ts REQUEST`, with the
// request as JSON. `ForeignPrograms` runs it in a namespace of the laboratory; programs stay when it ends.
import { closeSync, openSync, rmSync } from "node:fs";
import { BpfMap, mapFlags, mapTypes, openPinned, pinObject } from "@kpng/backend-ebpf/bpf/bpf-map.ts";
import { loadProgram, type ProgramKind } from "@kpng/backend-ebpf/bpf/program.ts";
import { bpf, makeAttribute, readInfo, requireBpf } from "@kpng/backend-ebpf/bpf/system-call.ts";
import { socketHooks } from "@kpng/backend-ebpf/datapath/datapath.ts";
import { addressBytes } from "@kpng/backend-ebpf/layout/layout.ts";
import { add, addTo, call, copy, finish, load, set, setMap, skipIf, skipUnless, store } from "./bpf.ts";

/** A hook of sockets, e.g. `connect4`; the digit is the family. */
export type SocketHookName = string;

/** Effect of a foreign program. */
export type ForeignProgram =
  /** Denies sockets that go to an address, and leaves others alone. */
  | { readonly does: "deny"; readonly hook: SocketHookName; readonly address: string }
  /** Leads sockets from one address to another, as other service proxies do. */
  | {
      readonly does: "rewrite";
      readonly hook: SocketHookName;
      readonly address: string;
      readonly to: string;
      readonly port: number;
    }
  /** Counts sockets that go to an address (element 0) and others (element 1), in a map that is pinned beside it. */
  | { readonly does: "count"; readonly hook: SocketHookName; readonly address: string };

/** Where it is attached, and how. */
export interface ForeignPlace {
  readonly cgroup: string;
  readonly how: "link" | "multi" | "exclusive";
}

/** A request to this program. */
export type ForeignRequest =
  | { readonly kind: "attach"; readonly program: ForeignProgram; readonly place: ForeignPlace; readonly pin: string }
  /** Prints the names of the programs at a hook, in the order in which they run. */
  | { readonly kind: "list"; readonly hook: SocketHookName; readonly cgroup: string }
  /** Detaches a program that was attached without a link. */
  | { readonly kind: "detach"; readonly hook: SocketHookName; readonly cgroup: string; readonly pin: string }
  /** Prints both elements of a map of counts. */
  | { readonly kind: "counts"; readonly pin: string };

const attachTypes = new Map(socketHooks.map(({ name, attachType }) => [name, attachType]));
const commands = { attach: 8, detach: 9, openProgram: 13, query: 16, createLink: 28 };
const allowMulti = 2;
const counts = { type: mapTypes.array, keyBytes: 4, valueBytes: 8, maxEntries: 2, flags: mapFlags.mappable };
const countLayout = { ...counts, name: "foreign_counts" };

/** Offset in `struct bpf_sock_addr` of each word of the address, with the word. */
function addressWords(address: string): readonly (readonly [offset: number, word: number])[] {
  // An IPv4 address has its 4 bytes at the end.
  const bytes = addressBytes(address);
  if (!address.includes(":")) return [[4, bytes.readInt32LE(12)]];
  return [8, 12, 16, 20].map((offset, index) => [offset, bytes.readInt32LE(index * 4)]);
}

const portOffset = 24;

/** Returns instructions that skip `count` others unless the context has this address. */
function unlessAddress(address: string, count: number): readonly Buffer[] {
  const words = addressWords(address);
  return words.flatMap(([offset, word], index) => [
    load(2, 1, offset),
    skipUnless(2, word, count + 2 * (words.length - 1 - index)),
  ]);
}

function codeOf(program: ForeignProgram): readonly Buffer[] {
  switch (program.does) {
    case "deny":
      return [...unlessAddress(program.address, 2), ...finish(0), ...finish(1)];
    case "rewrite": {
      const port = ((program.port & 255) << 8) | (program.port >> 8);
      const words = addressWords(program.to).flatMap(([offset, word]) => [set(2, word), store(1, offset, 2)]);
      const change = [...words, set(2, port), store(1, portOffset, 2)];
      return [...unlessAddress(program.address, change.length), ...change, ...finish(1)];
    }
    case "count":
      return [
        ...[set(6, 1), ...unlessAddress(program.address, 1), set(6, 0)],
        ...[store(10, -4, 6), copy(2, 10), add(2, -4), ...setMap(1), call(1), skipIf(0, 0, 2)],
        ...[set(1, 1), addTo(0, 1), ...finish(1)],
      ];
  }
}

function attach({ program, place, pin }: Extract<ForeignRequest, { kind: "attach" }>): void {
  const kind: ProgramKind = { name: "foreign", type: 18, attachType: attachTypes.get(program.hook) ?? 0 };
  const instructions = codeOf(program);
  const mapAt = instructions.findIndex((each) => each.readUInt8(0) === 0x18);
  const map = mapAt < 0 ? undefined : BpfMap.create(countLayout);
  map?.pin(`${pin}-counts`);
  const { descriptor } = loadProgram(
    {
      code: Buffer.concat(instructions),
      references: map === undefined ? [] : [{ instruction: mapAt, symbol: "counts" }],
    },
    kind,
    new Map(map === undefined ? [] : [["counts", map.descriptor]]),
  );
  const folder = openSync(place.cgroup, "r");
  if (place.how === "link") {
    const attribute = makeAttribute(48, [0, descriptor], [4, folder], [8, kind.attachType]);
    pinObject(requireBpf("foreign program", commands.createLink, attribute), pin);
  } else {
    const flags = place.how === "multi" ? allowMulti : 0;
    const attribute = makeAttribute(16, [0, folder], [4, descriptor], [8, kind.attachType], [12, flags]);
    requireBpf("foreign program", commands.attach, attribute);
    pinObject(descriptor, pin);
  }
  closeSync(folder);
}

/** Names of the programs at a hook, in the order in which they run. */
function list(target: number, attachType: number): readonly string[] {
  const ids = Buffer.alloc(64 * 4);
  const query = makeAttribute(64, [0, target], [4, attachType], [16, ids], [24, 64]);
  requireBpf("query", commands.query, query);
  return Array.from({ length: query.readUInt32LE(24) }, (_, index) => {
    const opened = bpf(commands.openProgram, makeAttribute(12, [0, ids.readUInt32LE(index * 4)]));
    if (opened.kind === "failed") return "(gone)";
    const info = readInfo("program", opened.value, Buffer.alloc(80));
    return info.toString("latin1", 64, info.indexOf(0, 64));
  });
}

const request: ForeignRequest = JSON.parse(process.argv[2] ?? "");
switch (request.kind) {
  case "attach":
    attach(request);
    break;
  case "list": {
    const names = list(openSync(request.cgroup, "r"), attachTypes.get(request.hook) ?? 0);
    process.stdout.write(JSON.stringify(names));
    break;
  }
  case "detach": {
    const target = openSync(request.cgroup, "r");
    const attachType = attachTypes.get(request.hook) ?? 0;
    const program = openPinned(request.pin) ?? 0;
    requireBpf("foreign program", commands.detach, makeAttribute(16, [0, target], [4, program], [8, attachType]));
    rmSync(request.pin);
    break;
  }
  case "counts": {
    const { memory } = BpfMap.open(countLayout, `${request.pin}-counts`) ?? fail("no counts");
    process.stdout.write(JSON.stringify([memory.readUInt32LE(0), memory.readUInt32LE(8)]));
  }
}

function fail(reason: string): never {
  throw new Error(reason);
}
