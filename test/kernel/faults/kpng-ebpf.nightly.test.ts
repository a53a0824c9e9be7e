import { describe } from "vitest";
import { whyNoBpf } from "../laboratory/bpf.ts";
import { describeFaults } from "./describe-faults.ts";

const whyNot = await whyNoBpf();
// Also under CI=true: not every machine grants the right to load BPF programs.
if (whyNot === undefined) describeFaults("ebpf");
else describe.skip(`kpng-ebpf: what fails, when, and with which rules (skipped: ${whyNot})`, () => undefined);
