import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ManualClock } from "@kpng/process/testing/manual-clock.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createReadableLog } from "../testing/steps.ts";
import type { FlowEvent } from "./flow-event.ts";
import { FlowWatch } from "./flow-watch.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-flow-watch-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

test("events are passed on, and the program is started again when it ends", { timeout: 60_000 }, async () => {
  const program = join(folder, "conntrack");
  const line =
    "[NEW] tcp 6 120 SYN_SENT src=10.0.0.1 dst=10.96.0.1 sport=1 dport=80 [UNREPLIED] src=10.1.0.1 dst=10.0.0.1 sport=2 dport=1";
  writeFileSync(program, `#!/bin/sh\necho "    ${line}"\necho "no rights" >&2\nexit 1\n`);
  chmodSync(program, 0o755);
  const { log, lines } = createReadableLog();
  const clock = new ManualClock();
  const events: FlowEvent[] = [];
  let ends = 0;
  const stop = new AbortController();
  const onEnd = (): void => {
    ends += 1;
  };
  const watch = new FlowWatch({ log, onEvent: (event) => events.push(event), onEnd, program, clock });
  const running = watch.run(stop.signal);
  const wait = { timeout: 30_000 };
  await expect.poll(() => ends, wait).toBe(1);
  expect(events).toMatchObject([{ kind: "began", destination: "10.96.0.1", destinationPort: 80 }]);
  expect(JSON.stringify(lines)).toContain("exit 1: no rights");
  await clock.advance(60_000);
  await expect.poll(() => events.length, wait).toBeGreaterThan(1);
  stop.abort();
  await running;
});
