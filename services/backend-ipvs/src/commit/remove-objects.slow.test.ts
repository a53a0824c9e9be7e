import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/kernel-objects.ts";
import { useTools } from "../testing/use-tools.ts";
import { removeObjects } from "./remove-objects.ts";

const names = objectNames("");
const options = { names, runTool: new RunTool(), log: createLog("error", () => undefined) };
const twoServers = `case "$1" in -S) echo "-A -t 10.96.0.1:80 -s rr
-A -f 1795162113 -s rr" ;; esac`;
const rules = (text: string) => ({ "iptables-save": `echo "${text}"`, "ip6tables-save": "exit 0" });

function useKernel(record: string, iptables: string, ipvsadm = twoServers) {
  const ipset = `case "$1" in save) echo 'create KPNGIPVS-ADDRESSES hash:ip family inet
create KPNGIPVS-SERVERS hash:ip,port family inet
add KPNGIPVS-SERVERS 10.96.0.1,tcp:80
create KPNGIPVS-MARKS hash:ip family inet
add KPNGIPVS-MARKS 107.0.0.1
create KPNGIPVS-RECORD hash:ip family inet comment
add KPNGIPVS-RECORD 0.0.0.1 comment "${record}"
create KPNGIPVS-HAIRPIN hash:net,net family inet' ;; esac`;
  const ip = 'case "$*" in *link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; esac';
  return useTools({ ...rules(iptables), "iptables-restore": "", ip, ipset, ipvsadm });
}

const kubeProxyRules = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN\nCOMMIT";
const sets = ["ADDRESSES", "SERVERS", "MARKS", "RECORD", "HAIRPIN"].map((role) => `destroy KPNGIPVS-${role}`);

test.each([
  ["boot=1,plans=0123456789abcdef", ["link delete kube-ipvs0", "-D -t 10.96.0.1:80", "-D -f 1795162113"]],
  ["handed-over", ["-D -f 1795162113"]],
])("with the record %s, a cleanup deletes %j", async (record, deleted) => {
  const tools = useKernel(record, kubeProxyRules);
  await removeObjects(options);
  expect(tools.readInputs()).toEqual([...deleted, ...sets]);
});

test("a cleanup after a hand-over changes nothing until kube-proxy has rules", async () => {
  const tools = useKernel("handed-over", "*nat\nCOMMIT");
  await expect(removeObjects(options)).rejects.toMatchObject({ code: "MOVE_TOO_EARLY" });
  expect(tools.readInputs()).toEqual([]);
});

test("a cleanup after a hand-over finds kube-proxy's rules in the other variant of iptables", async () => {
  useKernel("handed-over", "*nat\nCOMMIT");
  useTools({ "iptables-legacy-save": `echo "${kubeProxyRules}"` });
  await expect(removeObjects(options)).resolves.toBeUndefined();
});

test.each([
  "iptables-nft-save/1.8.9 Failed to initialize nft: Protocol not supported",
  "iptables-nft-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Invalid argument",
  "ip6tables-save: Cannot initialize: Table does not exist (do you need to insmod?)",
])("a cleanup takes a variant of iptables that the kernel does not support for one without rules: %s", async (said) => {
  useKernel("handed-over", "*nat\nCOMMIT");
  const fails = `echo "${said}" >&2; exit 1`;
  const other = { "iptables-nft-save": fails, "ip6tables-nft-save": fails };
  useTools({ ...other, "iptables-legacy-save": `echo "${kubeProxyRules}"` });
  await expect(removeObjects(options)).resolves.toBeUndefined();
});

test("a cleanup that may not read a variant of iptables fails", async () => {
  useKernel("boot=1", "*nat\nCOMMIT");
  useTools({ "iptables-nft-save": 'echo "Could not fetch rule set generation id: Permission denied" >&2; exit 4' });
  await expect(removeObjects(options)).rejects.toMatchObject({ code: "READ_FAILED" });
});

test("a cleanup that cannot read what a family has does not say that the family is removed", async () => {
  const tools = useTools({ ...rules(""), ip: "exit 0", ipset: "echo no >&2; exit 1", ipvsadm: "exit 0" });
  const lines: string[] = [];
  const log = createLog("info", (line) => void lines.push(line));
  await expect(removeObjects({ ...options, log })).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(lines.join()).not.toContain("family removed");
  expect(tools.readInputs()).toEqual([]);
});

test("a cleanup that cannot remove chains does not say that the family is removed", async () => {
  useTools({ "iptables-save": "exit 1", "ip6tables-save": "exit 1", ip: "exit 0", ipset: "exit 0", ipvsadm: "exit 0" });
  const lines: string[] = [];
  const log = createLog("info", (line) => void lines.push(line));
  await expect(removeObjects({ ...options, log })).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(lines.join()).toContain("cleanup is not complete");
  expect(lines.join()).not.toContain("family removed");
});

const notReadable = (reason: string) => `echo "Can't initialize ipvs: ${reason}
Are you sure that IP Virtual Server is built in the kernel or as module?" >&2; exit 2`;
const kernelRules = "*nat\n:KPNGIPVS-SERVICES - [0:0]\n-A PREROUTING -j KPNGIPVS-SERVICES\nCOMMIT";
const removedRules = [
  ...["*nat", ":KPNGIPVS-SERVICES - [0:0]", "-D PREROUTING -j KPNGIPVS-SERVICES", "-X KPNGIPVS-SERVICES"],
  "COMMIT",
];

test("a cleanup where the kernel has no IPVS removes rules and all ipsets", async () => {
  const tools = useKernel("boot=1", kernelRules, notReadable("Protocol not available"));
  await removeObjects(options);
  expect(tools.readInputs()).toEqual(["link delete kube-ipvs0", ...removedRules, ...sets]);
});

test("a cleanup that cannot read virtual servers keeps only the ipsets that record them, and fails", async () => {
  const tools = useKernel("handed-over", kubeProxyRules, notReadable("Permission denied (you must be root)"));
  const lines: string[] = [];
  const log = createLog("info", (line) => void lines.push(line));
  await expect(removeObjects({ ...options, log })).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(tools.readInputs()).toEqual(["destroy KPNGIPVS-ADDRESSES", "destroy KPNGIPVS-HAIRPIN"]);
  expect(lines.join()).toContain("the ipsets that record them stay");
  expect(lines.join()).not.toContain("family removed");
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

test("a cleanup that cannot delete the interface keeps the ipset by which the next one knows it", async () => {
  useKernel("boot=1", "*nat\nCOMMIT");
  const tools = useTools({
    ip: 'case "$*" in *-batch*) echo busy >&2; exit 1 ;; *link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; esac',
  });
  await expect(removeObjects(options)).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  expect(tools.readInputs()).not.toContain("destroy KPNGIPVS-ADDRESSES");
});
