import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { service } from "@kpng/model/testing/views.ts";
import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { useTools } from "../testing/use-tools.ts";
import { checkKernel, Schedulers, schedulerAnnotation, setKernel, wantedSysctls } from "./kernel-support.ts";

const works = "exit 0";
const allWork = { ip: works, ipvsadm: works, ipset: works };

async function check(tools: Readonly<Record<string, string>>): Promise<string> {
  useTools({ ...allWork, ...tools });
  try {
    await checkKernel(new RunTool());
    return "";
  } catch (error) {
    expect(error).toMatchObject({ code: "IPVS_UNAVAILABLE" });
    return String(error);
  }
}

test("the check succeeds where the kernel has everything", async () => {
  expect(await check({})).toBe("");
});

test("the check names everything that the kernel lacks, with the words of the tools", async () => {
  const said = await check({
    ipvsadm: 'echo "Can\'t initialize ipvs: Protocol not available" >&2; exit 2',
    ipset: 'echo "ipset v7.17: Cannot open session to kernel." >&2; exit 1',
  });
  expect(said).toContain("IPVS (module ip_vs): ipvsadm -S -n failed (exit 2): Can't initialize ipvs");
  expect(said).toContain("ipsets (module ip_set): ipset -t save failed (exit 1): ipset v7.17: Cannot open session");
});

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
  const parts = { sysctls: new Sysctls("/nonexistent"), runTool: new RunTool(), log };
  const none = { tcpMs: 0, tcpFinMs: 0, udpMs: 0 };
  await setKernel({ isStrictArp: false, timeouts: none }, parts);
  expect(lines.filter((line) => line.includes("sysctl not set"))).toHaveLength(4);
  await expect(setKernel({ isStrictArp: false, timeouts: { ...none, udpMs: 30_000 } }, parts)).rejects.toThrow(
    "--set 0 0 30",
  );
});

/**
 * Schedulers of a kernel that has all but `nosuch`. `tried` returns the lines that ipvsadm was given, and `rejected`
 * are the schedulers that the log names.
 */
function schedulers(mayTry = true) {
  const { readInputs } = useTools({
    ipvsadm: 'grep -q -- "-s nosuch" "$INPUT" && echo "Scheduler or persistence engine not found" >&2; exit 0',
  });
  const runTool = new RunTool();
  const rejected: unknown[] = [];
  const log = {
    error: (_text: string, fields?: { readonly [name: string]: unknown }) => void rejected.push(fields?.scheduler),
    info() {},
    debug() {},
    with: () => log,
  };
  return { known: new Schedulers({ runTool, standard: "rr", log, mayTry }), tried: readInputs, rejected };
}

function withAnnotation(value: string) {
  return service("ns/web", { annotations: { [schedulerAnnotation]: value } });
}

test("a Service has the scheduler of its annotation if the kernel has it, and it is tried once", async () => {
  const { known, tried } = schedulers();
  expect(await known.schedulerOf(service("ns/web"))).toBe("rr");
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
  expect(tried()).toEqual(["-D -u 192.0.2.0:9", "-A -u 192.0.2.0:9 -s lc", "-D -u 192.0.2.0:9"]);
});

test("an annotation with a scheduler that the kernel lacks, or with more than a name, is ignored and logged once", async () => {
  const { known, tried, rejected } = schedulers();
  await known.schedulerOf(withAnnotation("nosuch"));
  expect(await known.schedulerOf(withAnnotation("nosuch"))).toBe("rr");
  expect(await known.schedulerOf(withAnnotation("lc\n-C"))).toBe("rr");
  expect(tried()).toEqual(["-D -u 192.0.2.0:9", "-A -u 192.0.2.0:9 -s nosuch"]);
  expect(rejected).toEqual(["nosuch", "lc\n-C"]);
});

test("a scheduler that the kernel lacks is found, also while another one is tried", async () => {
  const exists = '[ ! -e "$0.trial" ] || { echo "Service already exists" >&2; exit 0; }';
  const add = `${exists}; grep -q nosuch "$INPUT" && echo "Scheduler or persistence engine not found" >&2 || touch "$0.trial"`;
  useTools({ ipvsadm: `if grep -q -e "^-A" "$INPUT"; then ${add}; else rm -f "$0.trial"; fi; exit 0` });
  const known = new Schedulers({ runTool: new RunTool(), standard: "rr", log: createLog("off"), mayTry: true });
  const names = ["lc", "nosuch"].map((name) => known.schedulerOf(withAnnotation(name)));
  expect(await Promise.all(names)).toEqual(["lc", "rr"]);
});

test("without leave to try, every name counts as available", async () => {
  const { known, tried } = schedulers(false);
  expect(await known.schedulerOf(withAnnotation("mh"))).toBe("mh");
  expect(tried()).toEqual([]);
});

test("a scheduler that another instance tries at this moment counts as available", async () => {
  useTools({ ipvsadm: 'grep -q -- "^-A" "$INPUT" && echo "Service already exists" >&2; exit 0' });
  const log = createLog("error", () => undefined);
  const known = new Schedulers({ runTool: new RunTool(), standard: "rr", log, mayTry: true });
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
});

test("a scheduler whose trial failed for another reason is tried again", async () => {
  const isFirst = '[ ! -e "$0.failed" ] && touch "$0.failed"';
  useTools({ ipvsadm: `grep -q -- "^-A" "$INPUT" && ${isFirst} && echo "Memory allocation problem" >&2; exit 0` });
  const log = createLog("off");
  const known = new Schedulers({ runTool: new RunTool(), standard: "rr", log, mayTry: true });
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("rr");
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
});
