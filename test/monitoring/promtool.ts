import { spawnSync } from "node:child_process";
import { findBinaries } from "../cluster/binaries.ts";

export interface Promtool {
  /** Runs promtool; returns whether it succeeded, and its output. */
  run(args: readonly string[], input?: string): { readonly isContent: boolean; readonly output: string };
}

/** Returns promtool, or the reason why it is not available. It is built like the programs of test/cluster. */
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
