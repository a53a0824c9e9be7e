import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/kernel-objects.ts";
import { useTools } from "../testing/use-tools.ts";
import { removeKubeProxy } from "./kube-proxy.ts";

const options = {
  names: objectNames(""),
  runTool: new RunTool(),
  log: createLog("error", () => undefined),
  localAddresses: { v4: ["192.0.2.1"], v6: [] },
  excludedCIDRs: ["203.0.113.0/24"],
};

const sets = `create KPNGIPVS-ADDRESSES hash:ip family inet
add KPNGIPVS-ADDRESSES 10.96.0.1
create KPNGIPVS-SERVERS hash:ip,port family inet
add KPNGIPVS-SERVERS 10.96.0.1,tcp:80
add KPNGIPVS-SERVERS 192.0.2.1,tcp:30080
create KUBE-CLUSTER-IP hash:ip,port family inet
add KUBE-CLUSTER-IP 10.96.0.1,tcp:80
add KUBE-CLUSTER-IP 10.96.0.2,udp:53
add KUBE-CLUSTER-IP 203.0.113.1,tcp:80
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
add KUBE-NODE-PORT-TCP 30081
create KUBE-6-LOAD-BALANCER-SOURCE-CID hash:ip,port,net family inet6
create KUBE-DST-3YNVZWWGX3UQQ4VQ hash:ip family inet`;

const servers = `-A -t 10.96.0.1:80 -s rr
-A -t 10.96.0.1:8080 -s rr
-A -t 192.0.2.1:30080 -s rr
-A -t 192.0.2.1:30081 -s rr
-A -u 10.96.0.2:53 -s rr
-a -u 10.96.0.2:53 -r 10.1.1.7:53 -m -w 1
-A -t 203.0.113.1:80 -s rr
-A -t 198.51.100.9:30080 -s lc
-A -t 198.51.100.9:80 -s lc`;

const rules = `*mangle
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j KPNGIPVS-SERVICES
-A KUBE-SERVICES -j KUBE-SVC-TCOU7JCQXEZGVUNU
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-POD-FW-3YNVZWWGX3UQQ4VQ - [0:0]
-A INPUT -j KUBE-FIREWALL
COMMIT`;

interface Kernel {
  readonly save?: string;
  readonly list?: string;
  readonly remove?: string;
  /** Ipset that a rule of another program uses. */
  readonly usedSet?: string;
}

function useKernel(addresses: string, kernel: Kernel = {}) {
  const { save = `echo "${sets}"`, list = `echo "${servers}"`, remove = "true", usedSet = "none" } = kernel;
  return useTools({
    ip: `case "$*" in *address*) echo "${addresses}" ;; esac`,
    // As the real one, it ends at the first line that fails.
    ipset: `touch "$0.gone"; case "$1" in save) ${save} ;;
list) echo "${sets}" | sed -n 's/^create \\([^ ]*\\) .*/\\1/p' | grep -vxFf "$0.gone" ;;
restore) while read -r _ set; do
  [ "$set" != ${usedSet} ] || { echo "$set is in use" >&2; exit 1; }
  ! grep -qx "$set" "$0.gone" || { echo "$set does not exist" >&2; exit 1; }
  echo "$set" >> "$0.gone"
done < "$INPUT" ;; esac`,
    ipvsadm: `if [ "$1" = -S ]; then ${list}; else ${remove}; fi`,
    "iptables-save": `cat << 'E'\n${rules}\nE`,
    "ip6tables-save": "exit 0",
    "iptables-restore": "exit 0",
  });
}

const ours = "4: kube-ipvs0    inet 10.96.0.1/32 scope host kube-ipvs0";

test("what kube-proxy has left goes, except virtual servers that are recorded as ours; other programs keep theirs", async () => {
  const tools = useKernel(ours);
  await removeKubeProxy(options);
  expect(tools.readInputs()).toEqual([
    "-D -t 10.96.0.1:8080",
    "-D -t 192.0.2.1:30081",
    "-D -u 10.96.0.2:53",
    "*nat",
    ":KUBE-SERVICES - [0:0]",
    ":KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]",
    '-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
    "-X KUBE-SERVICES",
    "-X KUBE-SVC-TCOU7JCQXEZGVUNU",
    "COMMIT",
    "destroy KUBE-CLUSTER-IP",
    "destroy KUBE-NODE-PORT-TCP",
    "destroy KUBE-6-LOAD-BALANCER-SOURCE-CID",
  ]);
});

test("the rules of a kube-proxy that uses the other variant of iptables go, too", async () => {
  useKernel(ours);
  const tools = useTools({
    "iptables-save": "exit 0",
    "iptables-legacy-save": `cat << 'E'\n${rules}\nE`,
    "iptables-legacy-restore": "exit 0",
  });
  await removeKubeProxy(options);
  expect(tools.readInputs()).toContain("-X KUBE-SERVICES");
});

test.each<readonly string[]>([
  ["has no address", ""],
  ["has an address that no ipset of ours has", `${ours}\n4: kube-ipvs0    inet 10.96.0.2/32 scope global`],
  ["has IPv6 addresses of kube-proxy", `${ours}\n4: kube-ipvs0    inet6 fd00:10:96::1/128 scope global`],
])("nothing goes while the interface %s", async (_name, addresses = "") => {
  const tools = useKernel(addresses);
  await expect(removeKubeProxy(options)).rejects.toMatchObject({ code: "MOVE_TOO_EARLY" });
  expect(tools.readInputs()).toEqual([]);
});

test.each([
  { what: "ipsets", kernel: { save: "exit 1" } },
  { what: "virtual servers", kernel: { list: "exit 1" } },
])("nothing goes if the $what cannot be read", async ({ kernel }) => {
  const tools = useKernel(ours, kernel);
  await expect(removeKubeProxy(options)).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(tools.readInputs()).toEqual([]);
});

test("ipsets stay if a virtual server cannot be deleted, so that another cleanup finds it", async () => {
  const tools = useKernel(ours, { remove: "echo busy >&2" });
  const logged: string[] = [];
  const log = createLog("info", (line) => void logged.push(line));
  await expect(removeKubeProxy({ ...options, log })).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  expect(logged.filter((line) => line.includes("kube-proxy removed")).join()).not.toContain('"v4"');
  const lines = tools.readInputs();
  expect(lines).toContain("-X KUBE-SERVICES");
  expect(lines.filter((line) => /^destroy KUBE-(?!6-)/.test(line))).toEqual([]);
});

test("an ipset that another program uses keeps no other one from being destroyed, and is the only failure", async () => {
  const tools = useKernel(ours, { usedSet: "KUBE-CLUSTER-IP" });
  const lines: string[] = [];
  const log = createLog("error", (line) => void lines.push(line));
  await expect(removeKubeProxy({ ...options, log })).rejects.toThrow("KUBE-CLUSTER-IP is in use");
  expect(lines).toHaveLength(1);
  // In one run with the other ipset, which ended there, and alone.
  expect(tools.readInputs().filter((line) => line === "destroy KUBE-NODE-PORT-TCP")).toHaveLength(2);
  expect(tools.readInputs()).toContain("destroy KUBE-6-LOAD-BALANCER-SOURCE-CID");
});
