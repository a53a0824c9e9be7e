// BPF programs of another project at the hooks of kpng-ebpf. As a program, `node foreign-programs.ts REQUEST` with the
// request as JSON, it attaches or lists them in a namespace of a laboratory; they stay when it ends.
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openPinned, pinObject } from "@kpng/backend-ebpf/bpf/bpf-map.ts";
import { loadProgram } from "@kpng/backend-ebpf/bpf/program.ts";
import { bpf, makeAttribute, readInfo, requireBpf } from "@kpng/backend-ebpf/bpf/system-call.ts";
import { socketHooks } from "@kpng/backend-ebpf/datapath/datapath.ts";
import { mountBpf } from "@kpng/laboratory/check/node-cgroup.ts";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";

/** A program that denies all sockets, or none. */
interface ForeignProgram {
  /** A hook of sockets, e.g. `connect4`. */
  readonly hook: string;
  readonly denies: boolean;
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

/** `r0 = result; exit`. Source: Documentation/bpf/standardization/instruction-set.rst. */
function codeOf({ denies }: ForeignProgram): Buffer {
  return Buffer.from([0xb7, 0, 0, 0, denies ? 0 : 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
}

function attach({ program, place, pin }: Extract<Request, { kind: "attach" }>, attachType: number): void {
  const foreign = { code: codeOf(program), references: [] };
  const { descriptor } = loadProgram(foreign, { name: "foreign", attachType }, new Map());
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
    if (opened < 0) return "(gone)";
    const info = readInfo("program", opened, Buffer.alloc(80));
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
