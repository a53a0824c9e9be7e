import { describe } from "vitest";
import { isEverything } from "../scenario/selection.ts";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBackend } from "./describe-backend.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";

const whyNot = await whyNoBpf();
// Also under CI=true: not every machine grants the right to load BPF programs.
if (whyNot === undefined) {
  describeBackend({ name: "kpng-ebpf", whyNot, start: kpngEbpf });
  if (isEverything) {
    const start: typeof kpngEbpf = (world) => kpngEbpf(world, { args: ["--sockets", "all"] });
    describeBackend({ name: "kpng-ebpf --sockets all", whyNot, start });
  }
} else describe.skip(`scenarios, with packets: kpng-ebpf (skipped: ${whyNot})`, () => undefined);
