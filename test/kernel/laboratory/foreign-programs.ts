// BPF programs of another project at the hooks of kpng-ebpf. As a program, `node foreign-programs.ts REQUEST` with the
// request as JSON, it attaches or lists them in a namespace of a laboratory; they stay when it ends.
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openPinned, pinObject } from "@kpng/backend-ebpf/bpf/bpf-map.ts";
import { loadProgram } from "@kpng/backend-ebpf/bpf/program.ts";
import { bpf, makeAttribute, readInfo, requireBpf } from "@kpng/backend-ebpf/bpf/system-call.ts";
import { socketHooks } from "@kpng/backend-ebpf/datapath/datapath.ts";
import { addressBytes } from "@kpng/backend-ebpf/layout/layout.ts";
import { mountBpf } from "@kpng/laboratory/check/node-cgroup.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

/** A program that denies sockets that go to an address, or leads them to another one (`to`), and leaves others alone. */
export interface ForeignProgram {
  /** A hook of sockets, e.g. `connect4`; the digit is the family. */
  readonly hook: string;
  readonly address: string;
  readonly to?: { readonly address: string; readonly port: number } | undefined;
}

/** Where a program is attached, and how: only with "exclusive" may groups below have none. */
interface ForeignPlace {
  readonly cgroup: string;
  readonly how: "link" | "multi" | "exclusive";
}

type Request =
  | { readonly kind: "attach"; readonly program: ForeignProgram; readonly place: ForeignPlace; readonly pin: string }
  | { readonly kind: "list"; readonly hook: string; readonly cgroup: string }
  | { readonly kind: "detach"; readonly hook: string; readonly cgroup: string; readonly pin: string };

const file = fileURLToPath(import.meta.url);

/** Foreign programs on one node of a laboratory. They are pinned, so they disappear with it. */
export class ForeignPrograms {
  readonly #laboratory: Laboratory;
  readonly #folder: string;
  #count = 0;

  private constructor(laboratory: Laboratory, folder: string) {
    this.#laboratory = laboratory;
    this.#folder = folder;
  }

  static async open(laboratory: Laboratory): Promise<ForeignPrograms> {
    const folder = join(await mountBpf(laboratory, "n1"), "foreign");
    await laboratory.run("n1", ["mkdir", "-p", folder]);
    return new ForeignPrograms(laboratory, folder);
  }

  /** Attaches a program, and returns a function that detaches it. */
  async attach(program: ForeignProgram, place: ForeignPlace): Promise<() => Promise<unknown>> {
    const pin = join(this.#folder, String(this.#count++));
    await this.#run({ kind: "attach", program, place, pin });
    return async () => {
      if (place.how !== "link") await this.#run({ kind: "detach", hook: program.hook, cgroup: place.cgroup, pin });
      await this.#laboratory.run("n1", ["rm", pin]);
    };
  }

  /** Returns the names of the programs at a hook of a cgroup, in the order in which they run. */
  async at(cgroup: string, hook: string): Promise<readonly string[]> {
    return JSON.parse(await this.#run({ kind: "list", hook, cgroup }));
  }

  #run(request: Request): Promise<string> {
    return this.#laboratory.run("n1", [process.execPath, file, JSON.stringify(request)]);
  }
}

const commands = { attach: 8, detach: 9, openProgram: 13, query: 16, createLink: 28 };
const allowMulti = 2;

/** Offset in `struct bpf_sock_addr` of each word of the address, with the word. */
function addressWords(address: string): readonly (readonly [offset: number, word: number])[] {
  // An IPv4 address has its 4 bytes at the end.
  const bytes = addressBytes(address);
  if (!address.includes(":")) return [[4, bytes.readInt32LE(12)]];
  return [8, 12, 16, 20].map((offset, index) => [offset, bytes.readInt32LE(index * 4)]);
}

/** An instruction. Source: Documentation/bpf/standardization/instruction-set.rst. Register 1 is the context. */
function instruction(code: number, destination = 0, source = 0, offset = 0, immediate = 0): Buffer {
  const bytes = Buffer.from([code, (source << 4) | destination, 0, 0, 0, 0, 0, 0]);
  bytes.writeInt16LE(offset, 2);
  bytes.writeInt32LE(immediate | 0, 4);
  return bytes;
}

function codeOf({ address, to }: ForeignProgram): Buffer {
  const finish = (result: number) => [instruction(0xb7, 0, 0, 0, result), instruction(0x95)];
  const store = (offset: number, word: number) => [instruction(0xb4, 2, 0, 0, word), instruction(0x63, 1, 2, offset)];
  const port = to === undefined ? 0 : ((to.port & 255) << 8) | (to.port >> 8);
  const change =
    to === undefined
      ? finish(0)
      : [...addressWords(to.address).flatMap(([offset, word]) => store(offset, word)), ...store(24, port)];
  const words = addressWords(address);
  // Another word of the address skips the change.
  const compare = words.flatMap(([offset, word], at) => [
    instruction(0x61, 2, 1, offset),
    instruction(0x56, 2, 0, change.length + 2 * (words.length - 1 - at), word),
  ]);
  return Buffer.concat([...compare, ...change, ...finish(1)]);
}

function attach({ program, place, pin }: Extract<Request, { kind: "attach" }>, attachType: number): void {
  const kind = { name: "foreign", type: 18, attachType };
  const { descriptor } = loadProgram({ code: codeOf(program), references: [] }, kind, new Map());
  const folder = openSync(place.cgroup, "r");
  if (place.how === "link") {
    const attribute = makeAttribute(48, [0, descriptor], [4, folder], [8, attachType]);
    pinObject(requireBpf("foreign program", commands.createLink, attribute), pin);
  } else {
    const flags = place.how === "multi" ? allowMulti : 0;
    const attribute = makeAttribute(16, [0, folder], [4, descriptor], [8, attachType], [12, flags]);
    requireBpf("foreign program", commands.attach, attribute);
    pinObject(descriptor, pin);
  }
  closeSync(folder);
}

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

if (process.argv[1] === file) {
  const request: Request = JSON.parse(process.argv[2] ?? "");
  const hook = request.kind === "attach" ? request.program.hook : request.hook;
  const attachType = socketHooks.find(({ name }) => name === hook)?.attachType ?? 0;
  if (request.kind === "attach") attach(request, attachType);
  else if (request.kind === "list")
    process.stdout.write(JSON.stringify(list(openSync(request.cgroup, "r"), attachType)));
  else {
    const [target, program] = [openSync(request.cgroup, "r"), openPinned(request.pin) ?? 0];
    requireBpf("foreign program", commands.detach, makeAttribute(16, [0, target], [4, program], [8, attachType]));
  }
}
