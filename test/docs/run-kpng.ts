import { loadKpng } from "@kpng/cli/kpng.ts";
import { type Command, CommanderError } from "commander";
import { vi } from "vitest";

/** Result of a command of `kpng`. */
interface KpngResult {
  readonly out: string;
  readonly said: string;
  readonly code: number;
}

/**
 * Runs a command of `kpng` in this process, for commands that end by themselves: a test of many commands would need
 * minutes to start a process for each. Not for two at once: it replaces the output of this process.
 */
export async function runKpng(args: readonly string[]): Promise<KpngResult> {
  let out = "";
  let said = "";
  /** Passes texts to `keep`, and reports each as written. */
  const collect =
    (keep: (text: string) => void) =>
    (text: unknown, ...rest: readonly unknown[]): boolean => {
      keep(String(text));
      const written = rest.find((one) => typeof one === "function");
      if (written !== undefined) queueMicrotask(() => written());
      return true;
    };
  const spies = [
    vi.spyOn(process.stdout, "write").mockImplementation(collect((text) => (out += text))),
    vi.spyOn(process.stderr, "write").mockImplementation(collect((text) => (said += text))),
  ];
  const before = process.exitCode;
  process.exitCode = undefined;
  const stop = new AbortController();
  try {
    const program = (await loadKpng(args))(stop.signal);
    throwErrors(program);
    await program.parseAsync([...args], { from: "user" });
    return { out, said, code: Number(process.exitCode ?? 0) };
  } catch (error) {
    // As in `runProcess`.
    if (error instanceof CommanderError) return { out, said, code: error.exitCode === 0 ? 0 : 2 };
    throw error;
  } finally {
    stop.abort();
    process.exitCode = before;
    for (const spy of spies) spy.mockRestore();
  }
}

/** Lets the parser throw its errors instead of ending the process. */
function throwErrors(command: Command): void {
  command.exitOverride();
  for (const child of command.commands) throwErrors(child);
}
