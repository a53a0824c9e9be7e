import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RecentAddresses } from "@kpng/backend-kit/node-addresses/recent-addresses.ts";
import { afterEach, expect, test, vi } from "vitest";
import { OwnInterface } from "./own-interface.ts";

/** Puts a program `ip` before the system's: it does nothing, and fails for lines that match `failing`. */
async function useSilentIp(failing: string): Promise<AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), "kpng-ip-"));
  const program = join(folder, "ip");
  await writeFile(program, `#!/bin/sh\ncase "$*" in *-batch*) ! grep -q '${failing}' ;; esac\n`);
  await chmod(program, 0o755);
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
  return { [Symbol.asyncDispose]: () => rm(folder, { recursive: true }) };
}

afterEach(() => {
  vi.unstubAllEnvs();
});

test("a reading of the node's addresses is not used after an address of a Service was added or removed", async () => {
  await using _ = await useSilentIp("198.51.100.66");
  let readings = 0;
  const read = () => ({ v4: [`192.0.2.${++readings}`], v6: [] });
  // Each reading is used for long.
  const recent = new RecentAddresses({ read, nowMs: () => readings / 1_000 });
  const device = await OwnInterface.open("kpng-x", recent.forget);
  const counts: number[] = [];
  for (const change of [
    () => device.add(["10.96.0.1"], []),
    () => device.missing(["10.96.0.1"]),
    () => device.remove(["10.96.0.1"]),
    () => device.remove(["10.96.0.1"]),
    () => device.add(["198.51.100.66"], []).catch(() => undefined),
  ]) {
    recent.read().v4;
    await change();
    recent.read().v4;
    counts.push(readings);
  }
  expect(counts).toEqual([2, 2, 3, 3, 4]);
});
