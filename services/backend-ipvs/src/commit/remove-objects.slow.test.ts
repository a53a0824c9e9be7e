import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/kernel-objects.ts";
import { useTools } from "../testing/use-tools.ts";
import { removeObjects } from "./remove-objects.ts";

const names = objectNames("");
const lines: string[] = [];
const options = { names, runTool: new RunTool(), log: createLog("info", (line) => lines.push(line)) };
const twoServers = `case "$1" in -S) echo "-A -t 10.96.0.1:80 -s rr
-A -f 1795162113 -s rr" ;; esac`;
const rules = (text: string) => ({ "iptables-save": `echo "${text}"`, "ip6tables-save": "exit 0" });

const ourSets = `create KPNGIPVS-ADDRESSES hash:ip family inet
create KPNGIPVS-SERVERS hash:ip,port family inet
add KPNGIPVS-SERVERS 10.96.0.1,tcp:80
create KPNGIPVS-MARKS hash:ip family inet
add KPNGIPVS-MARKS 107.0.0.1
create KPNGIPVS-HAIRPIN hash:net,net family inet`;

function useKernel({ saved = ourSets, iptables = "*nat\nCOMMIT", ipvsadm = twoServers } = {}) {
  const ipset = `case "$1" in save) echo '${saved}' ;; esac`;
  const ip = 'case "$*" in *link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; esac';
  return useTools({ ...rules(iptables), "iptables-restore": "", ip, ipset, ipvsadm });
}

const sets = ["ADDRESSES", "SERVERS", "MARKS", "HAIRPIN"].map((role) => `destroy KPNGIPVS-${role}`);

test.each([
  ["without ipsets of kube-proxy", ourSets, ["link delete kube-ipvs0", "-D -t 10.96.0.1:80", "-D -f 1795162113"]],
  ["with ipsets of kube-proxy", `${ourSets}\ncreate KUBE-6-CLUSTER-IP hash:ip,port`, ["-D -f 1795162113"]],
])("a cleanup %s deletes the interface and virtual servers that are ours alone", async (_name, saved, deleted) => {
  const tools = useKernel({ saved });
  await removeObjects(options);
  expect(tools.readInputs()).toEqual([...deleted, ...sets]);
});

const kernelRules =
  "*nat\n:KPNGIPVS-SERVICES - [0:0]\n-A PREROUTING -j KPNGIPVS-SERVICES\n-A KPNGIPVS-SERVICES -j RETURN\nCOMMIT";
const removedRules = [
  "*nat",
  ":KPNGIPVS-SERVICES - [0:0]",
  "-D PREROUTING -j KPNGIPVS-SERVICES",
  "-X KPNGIPVS-SERVICES",
  "COMMIT",
];

test.each([
  "iptables-nft-save/1.8.9 Failed to initialize nft: Protocol not supported",
  "iptables-nft-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument",
  "ip6tables-save: Cannot initialize: Table does not exist (do you need to insmod?)",
  "ip6tables-save: Cannot initialize: Address family not supported by protocol",
])("a cleanup takes a variant of iptables that the kernel does not support for one without rules: %s", async (said) => {
  useKernel();
  const fails = `echo "${said}" >&2; exit 1`;
  const other = { "iptables-nft-save": fails, "ip6tables-nft-save": fails, "ip6tables-save": fails };
  const tools = useTools({
    ...other,
    "iptables-legacy-save": `echo "${kernelRules}"`,
    "iptables-legacy-restore": "exit 0",
  });
  await removeObjects(options);
  expect(tools.readInputs()).toEqual(removedRules);
  expect(lines.at(-2)).toContain('"family":"v4","virtualServers":2,"rules":2,');
});

test("a cleanup that may not read a variant of iptables fails", async () => {
  useKernel();
  useTools({ "iptables-nft-save": 'echo "Could not fetch rule set generation id: Permission denied" >&2; exit 4' });
  await expect(removeObjects(options)).rejects.toMatchObject({ code: "READ_FAILED" });
});

const notReadable = (reason: string) => `echo "Can't initialize ipvs: ${reason}
Are you sure that IP Virtual Server is built in the kernel or as module?" >&2; exit 2`;
test("a cleanup where the kernel has no IPVS removes rules and all ipsets", async () => {
  const tools = useKernel({ iptables: kernelRules, ipvsadm: notReadable("Protocol not available") });
  await removeObjects(options);
  expect(tools.readInputs()).toEqual(["link delete kube-ipvs0", ...removedRules, ...sets]);
});

test.each([
  ["virtual servers", { ipvsadm: notReadable("Permission denied (you must be root)") }],
  ["ipsets", { ipset: "echo no >&2; exit 1" }],
  ["rules", { "ip6tables-save": "echo no >&2; exit 1" }],
])("a cleanup that cannot read %s removes nothing, and fails", async (_name, broken) => {
  const tools = useKernel({ iptables: kernelRules });
  useTools(broken);
  const lines: string[] = [];
  const log = createLog("info", (line) => void lines.push(line));
  await expect(removeObjects({ ...options, log })).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(lines.join()).not.toContain("family removed");
  expect(tools.readInputs()).toEqual([]);
});

test("a cleanup on a node without ipsets of ours leaves the interface of kube-proxy", async () => {
  const tools = useTools({
    ...rules(""),
    ip: 'case "$*" in *link*) echo "4: kube-ipvs0: <NOARP>" ;; *) echo "4: kube-ipvs0    inet 10.96.0.1/32" ;; esac',
    ipset: "exit 0",
    ipvsadm: 'echo "-A -t 10.96.0.1:80 -s rr"',
  });
  await removeObjects(options);
  expect(tools.readInputs()).toEqual([]);
});

test("a cleanup that cannot delete the interface deletes nothing, and fails", async () => {
  const tools = useKernel({ iptables: kernelRules });
  useTools({
    ip: 'case "$*" in *-batch*) echo busy >&2; exit 1 ;; *link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; esac',
  });
  await expect(removeObjects(options)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  expect(tools.readInputs()).toEqual([]);
});
