import { nodeFamilies } from "@kpng/backend-kit/node-addresses/local-addresses.ts";
import type { Family } from "@kpng/model/address.ts";
import { iptablesTool } from "../read/installed-frame.ts";
import type { RunTool } from "../read/run-tool.ts";
import { BackendIpvsError } from "../render/ipvs-error.ts";
import { type ObjectNames, setName, setTypeNames } from "../render/object-names.ts";

interface CheckOptions {
  readonly names: ObjectNames;
  readonly runTool: RunTool;
  /** Families that the node serves. Default: those of this machine. */
  readonly families?: readonly Family[];
}

/**
 * Checks that the tools are installed and that the kernel has what they ask for; it changes nothing. `backend.ts` calls
 * it before it opens rule sets. Separate from `setKernel`, which changes settings.
 *
 * The kernel loads a module when a tool first asks for it, with the modprobe of the host: for the commands of this
 * function all but schedulers. So a container needs neither modprobe nor CAP_SYS_MODULE.
 *
 * Errors: IPVS_UNAVAILABLE, which names everything that is missing with its module; TOOL_MISSING.
 */
export async function checkKernel({ names, runTool, families = nodeFamilies() }: CheckOptions): Promise<void> {
  await runTool.read(["ip", "-o", "link", "show"]);
  const missing: string[] = [];
  for (const { part, command } of listedParts) {
    const fault = await faultOfRead(runTool, command);
    if (fault !== undefined) missing.push(`${part}: ${fault}`);
  }
  const trials = [interfaceTrial(names), ...setTypeNames.map(setTrial(names)), ...families.flatMap(ruleTrials(names))];
  for (const { part, command, lines, lacking } of trials) {
    const said = await runTool.stderrOf(command, lines);
    const faults = new Map<string, string>();
    // Some lines are only warnings about something else, or name a part again.
    for (const line of said.split("\n").filter((each) => lacking.test(each))) {
      const name = part(line);
      if (!faults.has(name)) faults.set(name, line);
    }
    for (const [name, line] of faults) missing.push(`${name}: ${line}`);
  }
  if (missing.length > 0) {
    throw new BackendIpvsError("IPVS_UNAVAILABLE", `the node's kernel gives no access to ${missing.join("; ")}`);
  }
}

/** Parts of the kernel that are needed, and a command that fails without them. */
const listedParts = [
  { part: "IPVS (module ip_vs)", command: ["ipvsadm", "-S", "-n"] },
  { part: "ipsets (module ip_set)", command: ["ipset", "-t", "save"] },
] as const;

async function faultOfRead(runTool: RunTool, command: readonly string[]): Promise<string | undefined> {
  try {
    await runTool.read(command);
    return undefined;
  } catch (error) {
    if (!(error instanceof BackendIpvsError) || error.code === "TOOL_MISSING") throw error;
    return error.message.replace(/^\[\w+\] /, "");
  }
}

/** A run of a tool that changes nothing, and that says so if the kernel lacks something. */
interface Trial {
  /** Returns the name of the part that is missing by a line that matches `lacking`, with its module. */
  readonly part: (line: string) => string;
  readonly command: readonly string[];
  readonly lines: readonly string[];
  /** Matches each line that names a missing part. The tool may say something else, e.g. that a lock is held. */
  readonly lacking: RegExp;
}

/** The kernel looks for the type of an interface, and loads its module, before it refuses the multicast address. */
function interfaceTrial({ interfaceName }: ObjectNames): Trial {
  return {
    part: () => "dummy interfaces (module dummy)",
    command: ["ip", "-batch", "-"],
    lines: [`link add ${interfaceName} address 01:00:00:00:00:00 type dummy`],
    lacking: /unknown device type|operation not supported/i,
  };
}

/** `ipset` asks the kernel for the type of a set before it refuses a limit that is no number. */
function setTrial({ prefix }: ObjectNames): (type: string) => Trial {
  return (type) => ({
    part: () => `ipsets of type ${type} (module ip_set_${type.replace(":", "_").replaceAll(",", "")})`,
    command: ["ipset", "restore"],
    lines: [`create ${prefix}-CHECK ${type} ${type.startsWith("bitmap") ? "range" : "maxelem"} none`],
    lacking: /set type not supported/,
  });
}

/**
 * Returns runs of iptables-restore that parse rules with all matches and targets of `renderFrame`, and commit none: a
 * parser asks the kernel for each match and target. Only the last rule may name ipsets, because the parser ends where
 * one does not exist yet.
 */
function ruleTrials(names: ObjectNames): (family: Family) => readonly Trial[] {
  return (family) => {
    const [addresses, marks] = [setName(names, family, "ADDRESSES"), setName(names, family, "NODE-MARKS")];
    const rules = {
      mangle: [
        "-j MARK --set-xmark 0x0/0x1",
        `-m set --match-set ${addresses} dst -j SET --map-set ${marks} dst,dst --map-mark`,
      ],
      nat: ["-m mark --mark 0x1/0x1 -j MASQUERADE --random-fully"],
      filter: ['-m conntrack --ctstate NEW -m comment --comment "kpng ipvs" -j REJECT'],
    };
    const command = [iptablesTool(family, "restore"), "--test", "--noflush", "--wait", "5"];
    return Object.entries(rules).map(([table, lines]) => ({
      part: (line) => nameOfPart(family, table, line),
      command,
      lines: [`*${table}`, ...lines.map((line) => `-A OUTPUT ${line}`), "COMMIT"],
      lacking: /unable to initialize table|missing kernel module|Couldn't load|Can't open socket|Permission denied/,
    }));
  };
}

function nameOfPart(family: Family, table: string, line: string): string {
  const tables = family === "v4" ? "iptables" : "ip6tables";
  const [, extension] = /(?:Extension|Couldn't load (?:match|target)) [`']?(\w+)/.exec(line) ?? [];
  if (extension === undefined) return `the table ${table} of ${tables} (module ${tables.slice(0, -1)}_${table})`;
  const ownModule = family === "v4" ? "ipt_REJECT" : "ip6t_REJECT";
  const shared = extension === "MASQUERADE" ? "xt_MASQUERADE" : `xt_${extension.toLowerCase()}`;
  return `${extension} of ${tables} (module ${extension === "REJECT" ? ownModule : shared})`;
}
