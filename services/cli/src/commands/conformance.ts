import { type PacketCase, packetCases } from "@kpng/laboratory/check/packet-cases.ts";
import { deviations, isDeviation, ProxyProfile } from "@kpng/laboratory/scenario/deviations.ts";
import { addOptions, type OptionSpec, oneOf, parsePositiveDurationMs, textOption } from "@kpng/process/options.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { aborted } from "@kpng/process/wait.ts";
import { Command } from "commander";
import { protocolCases, runCase } from "../conformance/protocol-cases.ts";
import { Results, readExceptions, resultOptions, withException } from "../conformance/results.ts";
import { runPackets } from "../conformance/run-packets.ts";
import type { Report } from "../conformance/tested-backend.ts";
import type { Options } from "../context/command-context.ts";

const protocolOptions: readonly OptionSpec[] = [
  {
    flags: "--report <how>",
    description:
      'how the backend says what it has applied: acks (revisions only), or stdout, with a line {"services": {"default/web": ["10.1.0.1"]}} (sorted addresses of endpoints) after each state',
    default: "acks",
    parse: oneOf(["acks", "stdout"]),
  },
  textOption(
    "--applied <command>",
    "shell command that prints such a line for the state that is applied now, instead of --report",
  ),
  textOption("--only <cases>", "run only these cases, separated by commas, e.g. C3,C4b; C3 means all of that rule"),
  {
    flags: "--timeout <duration>",
    description: "time within which the backend must react",
    default: 10_000,
    parse: parsePositiveDurationMs,
  },
  ...resultOptions,
];

const protocolExamples = `
In the command, {api} stands for the watcher's address and {node} for the node's name. Both are also in the environment, as
KPNG_API and KPNG_NODE_NAME.

Examples:
  # revisions only, from the backend's acknowledgements
  kpng conformance protocol -- kpng-json --api {api} --node-name {node}

  # the state, from lines that the backend prints
  kpng conformance protocol --report stdout -- python3 mine.py {api} {node}

The backend must be the process that the command starts (begin a wrapper with exec): only it gets SIGTERM. What it has
installed stays, so run one that makes rules in a network namespace: unshare -n sh -c 'ip link set lo up; kpng conformance …'.

Exit code 1 if a case fails, or after an interruption. docs/protocol.md has the rules.
`;

const packetOptions: readonly OptionSpec[] = [
  textOption(
    "--only <cases>",
    "run only these cases, or all whose names begin so, separated by commas, e.g. update/,cleanup",
  ),
  { flags: "--list", description: "print the names of the cases, and run nothing" },
  textOption("--cleanup <command>", "shell command, run on the node, that removes everything of the backend"),
  textOption(
    "--lose-rules <command>",
    "shell command, run on the node after the backend was killed, that removes its rules as another program might, but no base chain: established connections need the kernel's connection tracking, e.g. nft flush chain ip mine services; nft flush chain ip6 mine services",
  ),
  textOption(
    "--kubeconfig <file>",
    "let an API server on 127.0.0.1 serve the states, for a proxy that watches one; it must be empty and without controllers, because the run creates and deletes Nodes n1 and n2 and Services",
  ),
  {
    flags: "--timeout <duration>",
    description: "maximum time to install the rules of a new state",
    default: 30_000,
    parse: parsePositiveDurationMs,
  },
  ...resultOptions,
];

const packetExamples = `
The backend runs on node n1 of a network of namespaces, with two nodes, pods, a client and a neighbour. In its command:

  {api}         kpng's watcher, as unix:///PATH, also in KPNG_API  {kubeconfig}  the file of --kubeconfig
  {node}        name of the node, also in KPNG_NODE_NAME           {cgroup}      cgroup of the node's processes
  {options}     options of kube-proxy for the scenario's settings  {bpf}         folder of a BPF file system

With {cgroup}, that file system is at /sys/fs/bpf, too. {options} is for example --cluster-cidr=10.1.0.0/16,fd00:10:1::/48 --nodeport-addresses=0.0.0.0/0,::/0; others may be
--detect-local-mode, --pod-bridge-interface, --pod-interface-name-prefix and --masquerade-all. A proxy on plans hands them to
kpng-plan as they are. Without {options}, the backend must treat these ranges as pod addresses and serve node ports on all
addresses, and scenarios with other settings do not apply.

The backend must stay in the foreground (begin a wrapper with exec) and end at SIGTERM. It runs in a network namespace, but
with the files of this machine. A run of all cases takes one to three minutes. Each case also tests the change from the one
before; with --only, the first one starts from an empty state. A case counts as excepted if its failure has a reason in the
file of --exceptions.

Examples:
  kpng conformance packets --cleanup 'kpng-iptables --cleanup' -- kpng-iptables --api {api} --node-name {node} --state-dir none {options}
  kpng conformance packets --kubeconfig test.conf -- kube-proxy --kubeconfig {kubeconfig} --hostname-override n1 {options}

A file of --exceptions names cases that may fail, or deviations from kube-proxy's iptables mode, for all protocols or for
one, as in no-loopback-node-ports/udp. With a deviation, packets must have the result that it describes, or may where it says
"may":

${Object.entries(deviations)
  .map(([name, text]) => `  ${name.padEnd(30)}  ${text}`)
  .join("\n")}

It needs root or user namespaces, iptables and iproute2. Exit code 1 if a case fails, or after an interruption.
`;

/** `kpng conformance`: judges backends in any language, by the rules of the protocol or by packets. */
export function makeConformance(signal: AbortSignal): Command {
  const protocol = addOptions(new Command("protocol"), protocolOptions)
    .description("play a watcher against a backend, and check that it keeps the rules of the protocol")
    .argument("<backend...>", "command that starts the backend, after --")
    .addHelpText("after", protocolExamples)
    .action((command: string[], options: Options) => judgeProtocol(command, options, signal));
  const packets = addOptions(new Command("packets"), packetOptions)
    .description("run a backend on a node of network namespaces, and check by packets what its rules do")
    .argument("[backend...]", "command that starts the backend, after --")
    .addHelpText("after", packetExamples)
    .action((command: string[], options: Options) => judgePackets(command, options, signal));
  return new Command("conformance").addCommand(protocol).addCommand(packets);
}

async function judgeProtocol(command: readonly string[], options: Options, signal: AbortSignal): Promise<void> {
  const exceptions = readExceptions(options, (name) => protocolCases.some(({ id }) => id === name));
  const isMeant = (id: string, one: string): boolean => id === one || id.replace(/[a-z]$/, "") === one;
  const cases = chosen(protocolCases, options, isMeant);
  const { applied } = options;
  const report = typeof applied === "string" ? { command: applied } : (options.report as Report);
  const settings = { command, report, limitMs: Number(options.timeout) };
  const results = new Results("protocol", options);
  const interrupted = aborted(signal);
  // The Connect library reports each broken stream there, and the cases break many.
  console.error = () => undefined;
  try {
    for (const one of cases) {
      const outcome = await runCase(one, settings, interrupted);
      if (signal.aborted) break;
      results.add(withException(outcome, exceptions));
    }
  } finally {
    // An error before the first case, such as a backend that cannot be started, is no result.
    if (results.count > 0 || signal.aborted) results.finish(cases.length);
  }
}

async function judgePackets(command: readonly string[], options: Options, signal: AbortSignal): Promise<void> {
  const text = (name: string): string | undefined => (typeof options[name] === "string" ? options[name] : undefined);
  const isKnown = (name: string): boolean =>
    isDeviation(name.replace(/\/(?:tcp|udp|sctp)$/, "")) || packetCases.some(({ id }) => id === name);
  const exceptions = readExceptions(options, isKnown);
  const isExact = (one: string): boolean => packetCases.some(({ id }) => id === one);
  const isMeant = (id: string, one: string): boolean => (isExact(one) ? id === one : id.startsWith(one));
  const cases: readonly PacketCase[] = chosen(packetCases, options, isMeant);
  if (options.list === true) {
    for (const { id, name } of cases) process.stdout.write(`${id}  ${name}\n`);
    return;
  }
  if (command.length === 0)
    throw new ProcessError("BAD_OPTION", "the command that starts the backend is missing, after --");
  const results = new Results("packets", options);
  const profile = new ProxyProfile(exceptions);
  if (profile.families.length === 0)
    throw new ProcessError("BAD_OPTION", "--exceptions: with no-ipv4 and no-ipv6, nothing is left to test");
  const settings = {
    ...{ command, cleanup: text("cleanup"), loseRules: text("loseRules"), kubeconfig: text("kubeconfig") },
    ...{ profile, timeoutMs: Number(options.timeout) },
  };
  await runPackets(cases, settings, (result) => results.add(withException(result, exceptions)), signal);
  // Only a whole run can tell that nothing needs a deviation.
  const unused = results.count === packetCases.length ? profile.unused : [];
  for (const name of unused) {
    const reason = `no case uses the deviation, so the exception is not needed: ${exceptions.get(name)}`;
    results.add({ id: `exceptions/${name}`, rule: "each exception is used", kind: "failed", reason, elapsedMs: 0 });
  }
  results.finish(cases.length + unused.length);
}

/** Returns the cases of `--only`. Errors: BAD_OPTION if a word of it names no case. */
function chosen<Case extends { readonly id: string }>(
  cases: readonly Case[],
  options: Options,
  isMeant: (id: string, one: string) => boolean,
): readonly Case[] {
  if (typeof options.only !== "string") return cases;
  const only = options.only.split(",").map((one) => one.trim());
  if (only.includes("")) throw new ProcessError("BAD_OPTION", `--only ${options.only}: a name is empty`);
  const unknown = only.find((one) => !cases.some(({ id }) => isMeant(id, one)));
  if (unknown !== undefined) throw new ProcessError("BAD_OPTION", `--only: there is no case "${unknown}"`);
  return cases.filter(({ id }) => only.some((one) => isMeant(id, one)));
}
