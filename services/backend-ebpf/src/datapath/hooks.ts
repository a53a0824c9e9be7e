import type { ProgramKind } from "../bpf/program.ts";

/** A place of the kernel where a program of the object file runs. */
export interface Hook extends ProgramKind {
  /** Section of the object file with its code. */
  readonly section: string;
}

const socketHook = (name: string, attachType: number): Hook => ({
  ...{ name, section: `socket/${name}`, type: 18, attachType },
});

/** Hooks of sockets, which `Datapath` attaches to a cgroup. Source: `enum bpf_prog_type`, `enum bpf_attach_type`. */
export const socketHooks: readonly Hook[] = [
  socketHook("connect4", 10),
  socketHook("connect6", 11),
  socketHook("getpeername4", 29),
  socketHook("getpeername6", 30),
];
