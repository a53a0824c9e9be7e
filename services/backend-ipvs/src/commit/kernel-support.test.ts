import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { useTools } from "../testing/use-tools.ts";
import { checkKernel, setKernel } from "./kernel-support.ts";

async function check(tools: Readonly<Record<string, string>>): Promise<string> {
  useTools({ ip: "", ipvsadm: "", ipset: "", ...tools });
  try {
    await checkKernel(new RunTool());
    return "";
  } catch (error) {
    expect(error).toMatchObject({ code: "IPVS_UNAVAILABLE" });
    return String(error);
  }
}

test("the check names everything that the kernel lacks, with the words of the tools", async () => {
  const said = await check({
    ipvsadm: 'echo "Can\'t initialize ipvs: Protocol not available" >&2; exit 2',
    ipset: 'echo "ipset v7.17: Cannot open session to kernel." >&2; exit 1',
  });
  expect(said).toContain("IPVS (module ip_vs): ipvsadm -S -n failed (exit 2): Can't initialize ipvs");
  expect(said).toContain("ipsets (module ip_set): ipset -t save failed (exit 1): ipset v7.17: Cannot open session");
});

test("timeouts of IPVS are set if one is configured, even where sysctls cannot be set", async () => {
  // Standard error makes a run of ipvsadm fail, with the text in the message.
  useTools({ ipvsadm: 'echo "$*" >&2' });
  const lines: string[] = [];
  const log = createLog("error", (line) => void lines.push(line));
  const parts = { sysctls: new Sysctls("/nonexistent"), runTool: new RunTool(), log };
  const none = { tcpMs: 0, tcpFinMs: 0, udpMs: 0 };
  await setKernel({ isStrictArp: false, timeouts: none }, parts);
  expect(lines.filter((line) => line.includes("sysctl not set"))).toHaveLength(4);
  // Less than a second is a second, because 0 keeps the kernel's timeout.
  const timeouts = { ...none, tcpMs: 400, udpMs: 30_000 };
  await expect(setKernel({ isStrictArp: false, timeouts }, parts)).rejects.toThrow("--set 1 0 30");
});
