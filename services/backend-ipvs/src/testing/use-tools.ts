import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, vi } from "vitest";

/**
 * Puts shell scripts before the tools of the machine, until the test ends. Each finds its standard input in the file
 * `$INPUT`; `readInputs` returns the lines that all of them have been given. The tests of `commit/` call it, because
 * the machine may have neither IPVS nor the rights for it.
 */
export function useTools(scripts: Readonly<Record<string, string>>): { readonly readInputs: () => readonly string[] } {
  const folder = mkdtempSync(join(tmpdir(), "kpng-tools-"));
  onTestFinished(() => {
    rmSync(folder, { recursive: true });
    vi.unstubAllEnvs();
  });
  const inputs = join(folder, "inputs");
  for (const [name, script] of Object.entries(scripts)) {
    const file = join(folder, name);
    const lines = ["#!/bin/sh", `INPUT=${file}.input`, 'cat > "$INPUT"', `cat "$INPUT" >> ${inputs}`, script];
    writeFileSync(file, `${lines.join("\n")}\n`);
    chmodSync(file, 0o755);
  }
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
  const read = (): string => (existsSync(inputs) ? readFileSync(inputs, "utf8") : "");
  return {
    readInputs: () =>
      read()
        .split("\n")
        .filter((line) => line !== ""),
  };
}
