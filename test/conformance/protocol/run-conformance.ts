import { execFile } from "node:child_process";
import { programFile } from "../../process/program-file.ts";

/** A line of `kpng conformance protocol -o json`. */
interface Line {
  readonly id: string;
  readonly kind: "passed" | "failed" | "not-applicable" | "excepted";
  readonly reason: string;
}

interface Outcome {
  readonly code: number;
  readonly lines: readonly Line[];
  readonly failed: readonly Line[];
}

/** Runs `kpng conformance protocol` with a backend. */
export function runConformance(options: readonly string[], backend: readonly string[]): Promise<Outcome> {
  const args = [programFile("cli"), "conformance", "protocol", "-o", "json", ...options, "--", ...backend];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, (error, stdout, stderr) => {
      if (stderr !== "") reject(new Error(stderr));
      const lines: readonly Line[] = stdout
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
      const failed = lines.filter(({ kind }) => kind === "failed");
      resolve({ code: error === null ? 0 : Number(error.code), lines, failed });
    });
  });
}

/** The client of `faulty-client.ts`, without a fault. */
export const client = [process.execPath, "test/conformance/protocol/faulty-client.ts", "{api}", "{node}"];

/** Options of our backends. */
export const ours = [
  ...["--api", "{api}", "--node-name", "{node}"],
  ...["--log-level", "error", "--accept-older-after", "3s"],
];
