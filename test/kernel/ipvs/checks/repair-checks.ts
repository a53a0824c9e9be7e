import { desiredSysctls } from "@kpng/backend-ipvs/commit/kernel-support.ts";
import { publicAddress, web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, loadBalancerIP, pod } from "@kpng/laboratory/scenario/packet.ts";
import { hosts } from "@kpng/laboratory/scenario/places.ts";
import { programFile } from "../../../process/program-file.ts";
import { both, type Checks, expectTrue, options } from "./check.ts";

const program = programFile("backend-ipvs");

/** What a start needs and sets in the kernel, repairs of what other programs did, and what `--cleanup` removes. */
export const repairChecks: Checks = {
  "a second sync changes nothing, and a restart changes nothing": async (_world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    const again = await node.ask({ kind: "apply", state: both });
    const checked = await node.ask({ kind: "repair" });
    const restarted = await node.ask({ kind: "start", settings: {}, state: both });
    return [...again.changes, ...checked.changes, ...restarted.changes];
  },

  "what another program deletes is repaired, and its own virtual servers stay": async (_world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    const damages = [
      "ipvsadm -d -u '[fd00:10:96::11]:80' -r '[fd00:10:1:2::13]:8080'",
      "ip link delete kube-ipvs0",
      "iptables -t mangle -F KPNGIPVS-OUTPUT",
      "ip6tables -D INPUT -m comment --comment 'kpng ipvs' -j KPNGIPVS-INPUT",
    ];
    await node.ask({ kind: "shell", command: "ipvsadm -A -t 203.0.113.9:80 -s lc" });
    const wrong: string[] = [];
    for (const command of damages) {
      await node.ask({ kind: "shell", command });
      const { changes } = await node.ask({ kind: "repair" });
      if (changes.length === 0) wrong.push(`not noticed: ${command}`);
      const after = await node.ask({ kind: "repair" });
      wrong.push(...after.changes.map((change) => `after ${command}, the second repair changes ${change}`));
    }
    await node.ask({ kind: "apply", state: web(options, []) });
    const { output } = await node.ask({ kind: "shell", command: "ipvsadm -S -n" });
    await node.ask({ kind: "shell", command: "ipvsadm -D -t 203.0.113.9:80" });
    return [...wrong, ...expectTrue(output.includes("203.0.113.9:80 -s lc"), "the foreign virtual server is gone")];
  },

  "a firewall mark of another program stays, and --cleanup removes all that is ours": async (_world, node) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    const cleanUp = () => shell(`'${process.execPath}' '${program}' --cleanup 2>&1; echo "exit status $?"`);
    const ours = "ipset save; ip address; iptables-save; ip6tables-save";
    await node.ask({ kind: "start", settings: {}, state: web({ ...options, external: "Local" }, ["b", "c"]) });
    await shell("ipvsadm -A -f 1795162113 -s lc; iptables -A FORWARD -m set --match-set KPNGIPVS-MASQ src -j ACCEPT");
    await node.ask({ kind: "repair" });
    const marked = await shell("ipvsadm -S -n");
    // A set in use cannot be destroyed, and everything else is removed.
    const first = [await cleanUp(), await shell(ours)];
    await shell("iptables -D FORWARD -m set --match-set KPNGIPVS-MASQ src -j ACCEPT");
    const second = [await cleanUp(), await shell(ours)];
    const servers = await shell("ipvsadm -S -n; ipvsadm -D -f 1795162113");
    const left = (text = "") => text.split("\n").filter((line) => /kpng-?ipvs/i.test(line));
    return [
      ...expectTrue((marked.match(/^-A -f /gm) ?? []).length > 1, `no virtual servers with marks: ${marked}`),
      ...expectTrue(first[0]?.includes("exit status 1") === true, `with a set in use: ${first[0]}`),
      ...left(first[1]).filter((line) => !line.includes("KPNGIPVS-MASQ ")),
      ...expectTrue(second[0]?.includes("exit status 0") === true, `without: ${second[0]}`),
      ...left(second[1]),
      ...expectTrue(servers.trim() === "-A -f 1795162113 -s lc", `virtual servers are ${servers}`),
    ];
  },

  "a mark of another program is the same after IPVS": async (world, node) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    const rules = (verb: "A" | "D") => `set -e
iptables -t mangle -${verb === "A" ? "I" : "D"} PREROUTING -s ${hosts.a.v4} -d ${publicAddress(10).v4} -j MARK --set-xmark 0x8000300/0xffffffff
iptables -t mangle -${verb} POSTROUTING -p tcp --syn --dport 8080 -m mark --mark 0x8000300
`;
    const state = web({ ...options, external: "Local" }, ["b", "c"]);
    await node.ask({ kind: "start", settings: {}, state });
    await shell(rules("A"));
    const address = addressOf(state, loadBalancerIP("web"), "v4");
    const answer = await world.agentOf(pod("a")).askOnce({ protocol: "tcp", address, port: 80, timeoutMs: 5_000 });
    const listed = await shell("iptables -t mangle -nvxL POSTROUTING | grep 0x8000300");
    await shell(rules("D"));
    return [
      ...expectTrue(answer.kind === "answer" && answer.name === "b", `a packet with a mark: ${JSON.stringify(answer)}`),
      ...expectTrue(/^ *[1-9]/.test(listed), `the mark is lost: ${listed}`),
    ];
  },

  "a start finds everything that it needs in the kernel, and changes nothing to find it": async (_world, node) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    // Without empty tables: the kernel makes one when a tool first asks for it.
    const rules = ["iptables-save", "ip6tables-save"].map((tool) => `${tool} | sed -n '/^-/p'`);
    const state = ["ip link", "ipvsadm -S -n", "ipset save", ...rules].join("; ");
    const before = await shell(state);
    const first = (await node.ask({ kind: "check" })).output;
    const after = await shell(state);
    await node.ask({ kind: "start", settings: {}, state: both });
    const second = (await node.ask({ kind: "check" })).output;
    return [
      ...expectTrue(first === "", `before the first sync: ${first}`),
      ...expectTrue(after === before, `changed: ${before} → ${after}`),
      ...expectTrue(second === "", `after a sync: ${second}`),
    ];
  },

  "strict ARP, timeouts and the other settings of the kernel are set, and --cleanup leaves them": async (_w, node) => {
    const shell = async (command: string): Promise<string> =>
      (await node.ask({ kind: "shell", command })).output.trim();
    const settings = desiredSysctls({ isStrictArp: true });
    const read = `cd /proc/sys && cat ${settings.map(([name]) => name).join(" ")}`;
    const timeouts = await shell("ipvsadm -L --timeout");
    await node.ask({ kind: "settings", timeouts: { tcpMs: 901_000, tcpFinMs: 121_000, udpMs: 301_000 } });
    await node.ask({ kind: "start", settings: {}, state: both });
    const [before, set] = [await shell(read), await shell("ipvsadm -L --timeout")];
    await shell(`'${process.execPath}' '${program}' --cleanup 2>&1`);
    const after = await shell(read);
    await shell(`ipvsadm --set ${timeouts.replace(/^.*: /, "")}`);
    const desired = settings.map(([, value]) => value).join("\n");
    return [
      ...expectTrue(before === desired, `sysctls are ${before}`),
      ...expectTrue(set.endsWith("901 121 301"), `timeouts are ${set}`),
      ...expectTrue(after === desired, `after --cleanup, sysctls are ${after}`),
    ];
  },
};
