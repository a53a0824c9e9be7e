import { wantedSysctls } from "@kpng/backend-ipvs/commit/kernel-support.ts";
import { programFile } from "../../../process/program-file.ts";
import { both, type Checks, expectTrue, withScheduler } from "./check.ts";

const program = programFile("backend-ipvs");

/** Parts of the kernel that a start needs, schedulers, and settings. */
export const settingChecks: Checks = {
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

  "a Service has the scheduler of its annotation, and one that the kernel lacks stops nothing": async (_w, node) => {
    const servers = async (): Promise<string> =>
      (await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -F -- '-A -t 10.96.0.11:80'" })).output.trim();
    await node.ask({ kind: "start", settings: {}, state: withScheduler(both, "lc") });
    const first = await servers();
    // Endpoints of Services of the check before drain until this sync, which finds them without connections.
    await node.ask({ kind: "apply", state: withScheduler(both, "lc") });
    const again = await node.ask({ kind: "apply", state: withScheduler(both, "lc") });
    await node.ask({ kind: "apply", state: withScheduler(both, "nosuch") });
    const second = await servers();
    const { output: trial } = await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -F 192.0.2.0 || true" });
    return [
      ...expectTrue(first === "-A -t 10.96.0.11:80 -s lc", `with lc: ${first}`),
      ...again.changes.map((change) => `the second sync changes ${change}`),
      ...expectTrue(second === "-A -t 10.96.0.11:80 -s rr", `with a scheduler that does not exist: ${second}`),
      ...expectTrue(trial === "", `a trial is left: ${trial}`),
    ];
  },

  "strict ARP, timeouts and the other settings of the kernel are set, and --cleanup leaves them": async (_w, node) => {
    const shell = async (command: string): Promise<string> =>
      (await node.ask({ kind: "shell", command })).output.trim();
    const settings = wantedSysctls({ isStrictArp: true });
    const read = `cd /proc/sys && cat ${settings.map(([name]) => name).join(" ")}`;
    const timeouts = await shell("ipvsadm -L --timeout");
    await node.ask({ kind: "settings", timeouts: { tcpMs: 901_000, tcpFinMs: 121_000, udpMs: 301_000 } });
    await node.ask({ kind: "start", settings: {}, state: both });
    const [before, set] = [await shell(read), await shell("ipvsadm -L --timeout")];
    await shell(`'${process.execPath}' '${program}' --cleanup 2>&1`);
    const after = await shell(read);
    await shell(`ipvsadm --set ${timeouts.replace(/^.*: /, "")}`);
    const wanted = settings.map(([, value]) => value).join("\n");
    return [
      ...expectTrue(before === wanted, `sysctls are ${before}`),
      ...expectTrue(set.endsWith("901 121 301"), `timeouts are ${set}`),
      ...expectTrue(after === wanted, `after --cleanup, sysctls are ${after}`),
    ];
  },
};
