import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/object-names.ts";
import { useTools } from "../testing/use-tools.ts";
import { checkKernel } from "./check-kernel.ts";

const works = "exit 0";
// With all modules, the tools refuse what the check asks for.
const refuses = 'case "$*" in *batch*) echo "RTNETLINK answers: Cannot assign requested address" >&2; exit 1 ;; esac';
const noNumber = `[ "$1" != restore ] || { echo "Syntax error: 'none' is invalid as number" >&2; exit 1; }`;
const noType = `[ "$1" != restore ] || ! grep -q hash:net,net "$INPUT" ||
{ echo "ipset v7.17: Error in line 1: Kernel error received: set type not supported" >&2; exit 1; }`;
const lacksSet = `grep -q match-set "$INPUT" && { echo "Set KPNGIPVS-ADDRESSES doesn't exist." >&2; exit 2; }; exit 0`;
const allWork = {
  ...{ ip: refuses, ipvsadm: works, ipset: noNumber },
  ...{ "iptables-restore": lacksSet, "ip6tables-restore": lacksSet },
};

async function check(tools: Readonly<Record<string, string>>): Promise<string> {
  useTools({ ...allWork, ...tools });
  try {
    await checkKernel({ names: objectNames(""), runTool: new RunTool(30_000), families: ["v4", "v6"] });
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
  expect(said).not.toContain("table");
});

const unknown = (table: string) =>
  `grep -q '^.${table}' "$INPUT" && { echo "iptables-restore: unable to initialize table '${table}'" >&2; exit 2; }; exit 0`;
const noExtension = (name: string) =>
  `grep -q -e ' ${name} *' "$INPUT" && echo "Warning: Extension ${name} revision 0 not supported, missing kernel module?" >&2; exit 0`;

test.each([
  ["(module dummy)", { ip: 'case "$*" in *batch*) echo "Error: Unknown device type." >&2; exit 1 ;; esac' }],
  ["ipsets of type hash:net,net (module ip_set_hash_netnet)", { ipset: noType }],
  ["the table nat of iptables (module iptable_nat)", { "iptables-restore": unknown("nat") }],
  ["the table mangle of ip6tables (module ip6table_mangle)", { "ip6tables-restore": unknown("mangle") }],
  ["set of iptables (module xt_set)", { "iptables-restore": noExtension("set") }],
  ["REJECT of ip6tables (module ip6t_REJECT)", { "ip6tables-restore": noExtension("REJECT") }],
  ["MASQUERADE of iptables (module xt_MASQUERADE)", { "iptables-restore": noExtension("MASQUERADE") }],
  ["conntrack of iptables (module xt_conntrack)", { "iptables-restore": noExtension("conntrack") }],
])("the check names what is missing, and nothing else: %s", async (part, tools) => {
  const said = await check(tools);
  expect(said).toContain(part);
  expect(said.match(/\(module/g)).toHaveLength(1);
});

test("the check names all extensions that the kernel lacks, each once, with the line that says so", async () => {
  const warnings = ["# Warning: iptables-legacy tables present, use iptables-legacy-save to see them"];
  for (const name of ["conntrack", "conntrack", "REJECT"]) {
    warnings.push(`Warning: Extension ${name} revision 0 not supported, missing kernel module?`);
  }
  const script = `grep -q '^.filter' "$INPUT" && echo "${warnings.join("\n")}" >&2; exit 0`;
  const said = await check({ "iptables-restore": script });
  expect(said).toContain("(module xt_conntrack): Warning: Extension conntrack revision 0 not supported");
  expect(said).toContain("(module ipt_REJECT): Warning: Extension REJECT revision 0 not supported");
  expect(said.match(/\(module/g)).toHaveLength(2);
  expect(said).not.toContain("tables present");
});

test("a tool that another program keeps from working is not taken for a part that the kernel lacks", async () => {
  const isLocked = 'echo "Another app is currently holding the xtables lock" >&2; exit 4';
  expect(await check({ "iptables-restore": isLocked, "ip6tables-restore": isLocked })).toBe("");
});

test("without IPv6, nothing of ip6tables is needed", async () => {
  useTools({ ...allWork, "ip6tables-restore": unknown("nat") });
  const options = { names: objectNames(""), runTool: new RunTool(30_000), families: ["v4"] } as const;
  await expect(checkKernel(options)).resolves.toBeUndefined();
});
