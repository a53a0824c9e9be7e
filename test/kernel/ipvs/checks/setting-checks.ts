import { wantedSysctls } from "@kpng/backend-ipvs/commit/kernel-support.ts";
import { programFile } from "../../../process/program-file.ts";
import { both, type Checks, expectTrue } from "./check.ts";

const program = programFile("backend-ipvs");

/** Parts of the kernel that a start needs, and settings. */
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
