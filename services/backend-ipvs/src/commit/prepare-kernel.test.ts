import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { checkKernel } from "./prepare-kernel.ts";

/** Puts programs that say something and end with a status before those of the machine. */
function useTools(tools: Readonly<Record<string, readonly [status: number, stderr: string]>>): void {
  const folder = mkdtempSync(join(tmpdir(), "kpng-tools-"));
  onTestFinished(() => {
    rmSync(folder, { recursive: true });
    vi.unstubAllEnvs();
  });
  for (const [name, [status, stderr]] of Object.entries(tools)) {
    writeFileSync(join(folder, name), `#!/bin/sh\necho "${stderr}" >&2\nexit ${status}\n`);
    chmodSync(join(folder, name), 0o755);
  }
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
}

const works = [0, ""] as const;
const noIpvs = [2, "Can't initialize ipvs: Protocol not available"] as const;
const noIpset = [1, "ipset v7.17: Cannot open session to kernel."] as const;

test("the check names everything that the kernel lacks, with the words of the tools", async () => {
  useTools({ ip: works, ipvsadm: noIpvs, ipset: noIpset, "iptables-save": works });
  const error = await checkKernel(new RunTool(30_000)).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "IPVS_UNAVAILABLE" });
  const message = String(error);
  expect(message).toContain("IPVS (module ip_vs): ipvsadm -S -n failed (exit 2): Can't initialize ipvs");
  expect(message).toContain("ipsets (module ip_set): ipset -t save failed (exit 1): ipset v7.17: Cannot open session");
  expect(message).not.toContain("mangle");
});

test("the check succeeds where all tools do", async () => {
  useTools({ ip: works, ipvsadm: [0, ""], ipset: works, "iptables-save": works });
  await expect(checkKernel(new RunTool(30_000))).resolves.toBeUndefined();
});
