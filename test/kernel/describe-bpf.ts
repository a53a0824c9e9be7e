import { describe } from "vitest";
import { whyNoBpf } from "./laboratory/bpf.ts";

const whyNot = await whyNoBpf();

/**
 * Describes tests of BPF programs. Where none can be loaded they are skipped with the reason, also under CI=true: not
 * every machine grants the right.
 */
export function describeBpf(name: string, body: () => void): void {
  if (whyNot === undefined) describe(name, body);
  else describe.skip(`${name} (skipped: ${whyNot})`, () => undefined);
}
