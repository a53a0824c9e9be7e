import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { OwnProxy } from "../../kernel/backend/kpng-proxy.ts";
import { programFile } from "../../process/program-file.ts";

/** A line of `kpng conformance packets -o json`. */
export interface PacketResult {
  readonly id: string;
  readonly kind: "passed" | "failed" | "not-applicable" | "excepted";
  readonly reason: string;
}

interface Outcome {
  readonly code: number;
  readonly results: ReadonlyMap<string, PacketResult>;
  /** What the command wrote to standard error. */
  readonly stderr: string;
}

/** Runs `kpng conformance packets` with a proxy, and with more options. `cases` are words for `--only`. */
export async function runPackets(
  { command, cleanup, loseRules, exceptions }: OwnProxy,
  cases: readonly string[],
  more: readonly string[] = [],
): Promise<Outcome> {
  const options = ["--cleanup", cleanup, "--lose-rules", loseRules, "--only", cases.join(","), "-o", "json"];
  const excepted = exceptions === undefined ? [] : ["--exceptions", exceptions];
  const args = ["conformance", "packets", ...options, ...excepted, ...more, "--", ...command];
  const child = spawn(process.execPath, [programFile("cli"), ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const closed = once(child, "close");
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr = (stderr + text).slice(-4_000)));
  const results = new Map<string, PacketResult>();
  for await (const line of createInterface({ input: child.stdout })) {
    const result: PacketResult = JSON.parse(line);
    results.set(result.id, result);
  }
  const [code] = await closed;
  return { code: Number(code), results, stderr };
}
