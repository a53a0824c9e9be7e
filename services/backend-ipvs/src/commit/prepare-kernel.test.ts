import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { useTools } from "../testing/use-tools.ts";
import { checkKernel } from "./prepare-kernel.ts";

const works = "exit 0";
const noIpvs = 'echo "Can\'t initialize ipvs: Protocol not available" >&2; exit 2';
const noIpset = 'echo "ipset v7.17: Cannot open session to kernel." >&2; exit 1';

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
  useTools({ ip: works, ipvsadm: works, ipset: works, "iptables-save": works });
  await expect(checkKernel(new RunTool(30_000))).resolves.toBeUndefined();
});
