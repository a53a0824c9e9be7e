import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { openPinned, pinObject } from "./bpf-map.ts";
import { BackendEbpfError } from "./ebpf-error.ts";
import type { LoadedProgram } from "./program.ts";
import { bpf, closeDescriptor, describeErrno, makeAttribute, readInfo, requireBpf } from "./system-call.ts";

/** Place that a program is attached to. */
export type LinkTarget =
  | { readonly kind: "cgroup"; readonly folder: string }
  | { readonly kind: "interface"; readonly index: number };

/** Outcome for a link: it was made, its program was replaced, or it was as it should be. */
export type LinkChange = "attached" | "replaced" | "none";

const commands = { create: 28, update: 29 };
/** Before all programs that are attached already (BPF_F_BEFORE). */
const beforeOthers = 8;
const errnoNotPermitted = 1;

/**
 * Attaches a program through a link that is pinned at a path, so that it outlives this process. An existing link gets
 * the new program in one step, between two packets; one that leads elsewhere is replaced: the new one is attached
 * before the old one goes. `Datapath` calls it for each hook and interface, at every full sync and check. Errors:
 * BPF_FAILED.
 */
export function attachPinned(program: LoadedProgram, target: LinkTarget, path: string): LinkChange {
  const existing = openPinned(path);
  try {
    const info = existing === undefined ? undefined : readInfo(`link ${path}`, existing, Buffer.alloc(64));
    const isThere = info !== undefined && leadsTo(info, target);
    if (isThere && info.readUInt32LE(8) === program.id) return "none";
    if (isThere && existing !== undefined) {
      requireBpf(
        `program ${program.kind.name} cannot be replaced`,
        commands.update,
        makeAttribute(16, [0, existing], [4, program.descriptor]),
      );
      return "replaced";
    }
    const made = attach(program, target);
    try {
      // Without its file, the old link goes with the descriptor that is closed below.
      rmSync(path, { force: true });
      pinObject(made, path);
    } finally {
      closeDescriptor(made);
    }
    return "attached";
  } finally {
    if (existing !== undefined) closeDescriptor(existing);
  }
}

/** Returns false if no link is pinned at a path, or if a pinned one was detached. Errors: BPF_FAILED. */
export function isAttached(path: string): boolean {
  const link = openPinned(path);
  if (link === undefined) return false;
  const info = readInfo(`link ${path}`, link, Buffer.alloc(64));
  closeDescriptor(link);
  // The target of a detached link is 0, for cgroups and interfaces.
  return info.readUInt32LE(16) !== 0;
}

/**
 * Attaches a program: at an interface before the programs of others, many of which end the chain for packets that they
 * let through; at a cgroup after them, because no order can be requested there before Linux 6.17.
 */
function attach({ descriptor, kind }: LoadedProgram, target: LinkTarget): number {
  const isCgroup = target.kind === "cgroup";
  const at = isCgroup ? openSync(target.folder, "r") : target.index;
  try {
    const flags = isCgroup ? 0 : beforeOthers;
    const attribute = makeAttribute(48, [0, descriptor], [4, at], [8, kind.attachType], [12, flags]);
    const result = bpf(commands.create, attribute);
    if (result.kind === "done") return result.value;
    const what = isCgroup ? target.folder : `interface ${target.index}`;
    // The right to attach was needed to load the program, too.
    const isExcluded = isCgroup && result.errno === errnoNotPermitted;
    const why = isExcluded ? ": another program is attached there or above without BPF_F_ALLOW_MULTI" : "";
    const failure = `program ${kind.name} cannot be attached to ${what}: ${describeErrno(result.errno)}${why}`;
    throw new BackendEbpfError("BPF_FAILED", failure);
  } finally {
    if (isCgroup) closeSync(at);
  }
}

/** The target of a link whose interface or cgroup has gone is 0. Source: `struct bpf_link_info`. */
function leadsTo(info: Buffer, target: LinkTarget): boolean {
  return target.kind === "interface"
    ? info.readUInt32LE(16) === target.index
    : info.readBigUInt64LE(16) === statSync(target.folder, { bigint: true }).ino;
}
