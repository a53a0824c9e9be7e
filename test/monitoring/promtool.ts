import { spawnSync } from "node:child_process";
import { findBinaries } from "../cluster/binaries.ts";

export interface Promtool {
  /** Runs it and returns all that it says, and whether it was content. */
  run(args: readonly string[], input?: string): { readonly isContent: boolean; readonly output: string };
}

/** Prometheus's own checks, or why they cannot be had here: it is built as the programs of test/cluster are. */
export async function findPromtool(): Promise<Promtool | { readonly whyNot: string }> {
  const binaries = await findBinaries(["promtool"]);
  if (binaries.kind === "missing") return { whyNot: binaries.reason };
  const program = binaries.paths.promtool ?? "";
  return {
    run: (args, input = "") => {
      const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: "utf8" });
      return { isContent: status === 0, output: `${stdout}${stderr}`.trim() };
    },
  };
}
