import { expect, test } from "vitest";
import { objectNames, parseServer } from "../render/kernel-objects.ts";
import { useTools } from "../testing/use-tools.ts";
import { parseConnectionCounts } from "./connection-counts.ts";
import { isRecorded, parseLink, parseServers, parseSets, readObjects } from "./read-objects.ts";
import { RunTool } from "./run-tool.ts";

const names = objectNames("");

test("ipvsadm -L gives the connections of each real server, closing ones included", () => {
  const text = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  [fd00::1]:80 rr persistent 10800
  -> [fd01::2]:8080               Masq    1      3          4         
TCP  10.96.0.1:80 rr
  -> 10.1.1.1:8080                Masq    0      1          0         
FWM  1799356418 IPv6 mh
  -> [fd01::2]:8080               Masq    1      0          0         
`;
  expect([...parseConnectionCounts(text)]).toEqual([
    ["-t [fd00::1]:80 -r [fd01::2]:8080", 7],
    ["-t 10.96.0.1:80 -r 10.1.1.1:8080", 1],
    ["-f 1799356418 -6 -r [fd01::2]:8080", 0],
  ]);
});

test("ipvsadm -S gives our virtual servers and none of others", () => {
  const text = `-A -t 10.96.0.1:80 -s rr
-a -t 10.96.0.1:80 -r 10.1.1.1:8080 -m -w 1
-a -t 10.96.0.1:80 -r 10.1.1.2:8080 -g -w 1
-A -f 1795162114 -6 -s mh -b mh-port
-a -f 1795162114 -6 -r [fd01::2]:8080 -m -w 0
-A -t 203.0.113.9:80 -s wlc
-a -t 203.0.113.9:80 -r 10.1.1.9:80 -m -w 1
`;
  const read = parseServers(text, (server) => !server.includes("203.0.113.9"));
  expect([...(read.get("server") ?? [])]).toEqual([
    ["-t 10.96.0.1:80", "-s rr"],
    ["-f 1795162114 -6", "-s mh -b mh-port"],
  ]);
  expect([...(read.get("real") ?? [])]).toEqual([
    ["-t 10.96.0.1:80 -r 10.1.1.1:8080", "-w 1"],
    ["-t 10.96.0.1:80 -r 10.1.1.2:8080", "-g -w 1"],
    ["-f 1795162114 -6 -r [fd01::2]:8080", "-w 0"],
  ]);
});

test.each([
  ["-t 10.96.0.1:80", { kind: "address", address: "10.96.0.1", element: "10.96.0.1,tcp:80", family: "v4" }],
  ["--sctp-service [fd00::1]:80", { kind: "address", address: "fd00::1", element: "fd00::1,sctp:80", family: "v6" }],
  ["-f 1795162113 -6", { kind: "mark", mark: 0x6b00_0001, element: "107.0.0.1", family: "v6" }],
  ["-x 1", undefined],
])("the virtual server %s is understood", (id, parts) => {
  expect(parseServer(id)).toEqual(parts);
});

test("a virtual server of a firewall mark is ours if it is recorded, and not by the range of its mark", () => {
  // The names "blue" and "green" have the same range.
  expect(objectNames("blue").markRange).toBe(objectNames("green").markRange);
  const sets = parseSets("create KPNGIPVS-MARKS hash:ip family inet\nadd KPNGIPVS-MARKS 107.0.0.1\n", names, "v4");
  expect(isRecorded("-f 1795162113", sets, "v4")).toBe(true);
  expect(isRecorded("-f 1795162114", sets, "v4")).toBe(false);
  expect(isRecorded("-f 1795162113 -6", sets, "v4")).toBe(false);
});

test.each([
  ["4: kube-ipvs0: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500 qdisc noqueue state UNKNOWN", "up"],
  ["4: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noqueue state DOWN", "down"],
  ["4: eth0@if5: <BROADCAST,UP,LOWER_UP> mtu 1500", "missing"],
])("of the interface in %s, the state is known", (text, state) => {
  expect(parseLink(text, "kube-ipvs0")).toBe(state);
});

test("IPv6 addresses that the tools print with dots have the form in which we write them", async () => {
  useTools({
    ip: 'echo "4: kube-ipvs0    inet6 ::ffff:1.2.3.4/128 scope global"',
    ipset: 'echo "create KPNGIPVS-6-SERVERS hash:ip,port\nadd KPNGIPVS-6-SERVERS ::ffff:1.2.3.4,tcp:80"',
    ipvsadm: 'echo "-A -t [::ffff:1.2.3.4]:80 -s rr\n-a -t [::ffff:1.2.3.4]:80 -r [::1.2.3.4]:8080 -m -w 1"',
  });
  const { objects } = await readObjects(new RunTool(), names, "v6");
  expect([...objects].flatMap(([kind, ofKind]) => [...ofKind.keys()].map((key) => `${kind} ${key}`))).toEqual([
    "SERVERS ::ffff:102:304,tcp:80",
    "address ::ffff:102:304",
    "server -t [::ffff:102:304]:80",
    "real -t [::ffff:102:304]:80 -r [::102:304]:8080",
  ]);
});

test("runs of ipvsadm follow one another, also those of two families", async () => {
  const { readInputs } = useTools({
    ipvsadm: 'mkdir "$0.busy" || echo busy >&2; sleep 0.1; rmdir "$0.busy"',
  });
  const runTool = new RunTool();
  const runs = ["-C", "-a", "-d"].map((line) => runTool.write(["ipvsadm", "-R"], [line]));
  await Promise.all([...runs, runTool.read(["ipvsadm", "-S"])]);
  expect(readInputs()).toEqual(["-C", "-a", "-d"]);
});

test("a run of ipvsadm that fails does not stop the next one", async () => {
  useTools({ ipvsadm: 'grep -q wrong "$INPUT" && echo wrong >&2; echo read; exit 0' });
  const runTool = new RunTool();
  const failing = runTool.write(["ipvsadm", "-R"], ["wrong"]);
  const next = runTool.read(["ipvsadm", "-S"]);
  await expect(failing).rejects.toMatchObject({ code: "COMMIT_REJECTED" });
  expect(await next).toBe("read\n");
});
