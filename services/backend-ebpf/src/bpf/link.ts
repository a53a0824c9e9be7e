import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { openPinned, pinObject } from "./bpf-map.ts";
import { BackendEbpfError } from "./ebpf-error.ts";
import type { LoadedProgram } from "./program.ts";
import { bpf, closeDescriptor, describeErrno, makeAttribute, readInfo, requireBpf } from "./system-call.ts";

/** Outcome for a link: it was made, its program was replaced, or it was as it should be. */
export type LinkChange = "attached" | "replaced" | "none";

const commands = { create: 28, update: 29 };
const errnoNotPermitted = 1;

/**
 * Attaches a program to a cgroup through a link that is pinned at a path, so that it outlives this process. An existing
 * link gets the new program in one step; one that leads elsewhere is replaced: the new one is attached before the old
 * one goes. `Datapath` calls it for each hook, at every full sync and check. Errors: BPF_FAILED.
 */
export function attachPinned(program: LoadedProgram, cgroup: string, path: string): LinkChange {
  const existing = openPinned(path);
  try {
    const info = existing === undefined ? undefined : readInfo(`link ${path}`, existing, Buffer.alloc(64));
    const isThere = info !== undefined && leadsTo(info, cgroup);
    if (isThere && info.readUInt32LE(8) === program.id) return "none";
    if (isThere && existing !== undefined) {
      requireBpf(
        `program ${program.kind.name} cannot be replaced`,
        commands.update,
        makeAttribute(16, [0, existing], [4, program.descriptor]),
      );
      return "replaced";
    }
    const made = attach(program, cgroup);
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
  // The cgroup of a detached link is 0.
  return info.readUInt32LE(16) !== 0;
}

/** Attaches a program after those of others, because no order can be requested at cgroups before Linux 6.17. */
function attach({ descriptor, kind }: LoadedProgram, cgroup: string): number {
  const folder = openSync(cgroup, "r");
  try {
    const result = bpf(commands.create, makeAttribute(48, [0, descriptor], [4, folder], [8, kind.attachType]));
    if (result.kind === "done") return result.value;
    // The right to attach was needed to load the program, too.
    const isExcluded = result.errno === errnoNotPermitted;
    const why = isExcluded ? ": another program is attached there or above without BPF_F_ALLOW_MULTI" : "";
    const failure = `program ${kind.name} cannot be attached to ${cgroup}: ${describeErrno(result.errno)}${why}`;
    throw new BackendEbpfError("BPF_FAILED", failure);
  } finally {
    closeSync(folder);
  }
}

/** The target of a link whose cgroup has gone is 0. Source: `struct bpf_link_info`. */
function leadsTo(info: Buffer, cgroup: string): boolean {
  return info.readBigUInt64LE(16) === statSync(cgroup, { bigint: true }).ino;
}
