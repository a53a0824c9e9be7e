import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { useTools } from "../testing/use-tools.ts";
import { setKernel, wantedSysctls } from "./prepare-kernel.ts";

test("a start sets the sysctls that IPVS needs, and those of strict ARP if they are asked for", () => {
  const needed = [
    ["net/ipv4/vs/conntrack", 1],
    ["net/ipv4/vs/expire_nodest_conn", 1],
    ["net/ipv4/vs/expire_quiescent_template", 1],
    ["net/ipv4/ip_forward", 1],
  ];
  const strict = [
    ["net/ipv4/conf/all/arp_ignore", 1],
    ["net/ipv4/conf/all/arp_announce", 2],
  ];
  expect(wantedSysctls({ isStrictArp: false })).toEqual(needed);
  expect(wantedSysctls({ isStrictArp: true })).toEqual([...needed, ...strict]);
});

test("timeouts of IPVS are set if one is configured, even where sysctls cannot be set", async () => {
  // Standard error makes a run of ipvsadm fail, with the text in the message.
  useTools({ ipvsadm: 'echo "$*" >&2' });
  const lines: string[] = [];
  const log = createLog("error", (line) => void lines.push(line));
  const parts = { sysctls: new Sysctls("/nonexistent"), runTool: new RunTool(30_000), log };
  const none = { tcpMs: 0, tcpFinMs: 0, udpMs: 0 };
  await setKernel({ isStrictArp: false, timeouts: none }, parts);
  expect(lines.filter((line) => line.includes("sysctl not set"))).toHaveLength(4);
  await expect(setKernel({ isStrictArp: false, timeouts: { ...none, udpMs: 30_000 } }, parts)).rejects.toThrow(
    "--set 0 0 30",
  );
});
