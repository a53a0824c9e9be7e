import type { ProgramKind } from "../bpf/program.ts";

/** A place of the kernel where a program of the object file runs. */
export interface Hook extends ProgramKind {
  /** Section of the object file with its code. */
  readonly section: string;
}

const socketHook = (name: string, code: string, attachType: number): Hook => ({
  ...{ name, section: `socket/${code}`, type: 18, attachType },
});

/** Hooks of sockets, which `Datapath` attaches to a cgroup. Source: `enum bpf_prog_type`, `enum bpf_attach_type`. */
export const socketHooks: readonly Hook[] = [
  socketHook("connect4", "forward4", 10),
  socketHook("connect6", "forward6", 11),
  socketHook("sendmsg4", "forward4", 14),
  socketHook("sendmsg6", "forward6", 15),
  socketHook("recvmsg4", "restore4", 19),
  socketHook("recvmsg6", "restore6", 20),
  socketHook("getpeername4", "restore4", 29),
  socketHook("getpeername6", "restore6", 30),
];
