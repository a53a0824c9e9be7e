import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-ebpf. `docs/errors.md` explains each. */
export type BackendEbpfErrorCode = "BPF_UNSUPPORTED" | "BPF_FAILED" | "PROGRAM_REJECTED" | "CGROUP_UNKNOWN";

/** An error of the eBPF backend. It is defined here because `bpf` is the lowest folder that throws it. */
export class BackendEbpfError extends CodedError<BackendEbpfErrorCode> {
  override readonly name = "BackendEbpfError";
}
