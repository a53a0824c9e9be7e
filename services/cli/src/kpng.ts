import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { formatVersion } from "@kpng/process/run/run-process.ts";
import { Command } from "commander";
import packageJson from "../package.json" with { type: "json" };
import { loadBackends } from "./commands/backends.ts";
import { refuseHabits } from "./commands/refusals.ts";

/** A command of `kpng`: its entry in help, and how to load it. */
interface Entry {
  /** Undefined for a command that help does not list. */
  readonly group: "Run:" | "Ask:" | "Debug:" | "Administer:" | undefined;
  readonly name: string;
  readonly description: string;
  readonly load: () => Promise<MakeCommand>;
}

type MakeCommand = (signal: AbortSignal, backends: readonly BackendCommand[], program: Command) => Command;

function entry(group: Entry["group"], name: string, description: string, load: Entry["load"]): Entry {
  return { group, name, description, load };
}

/** Returns the entry of a command from `commands/inspect.ts`. */
function query(group: Entry["group"], name: string, description: string): Entry {
  return entry(group, name, description, async () => {
    const { makeInspect } = await import("./commands/inspect.ts");
    return (signal) => makeInspect(name, signal);
  });
}

/** Returns the entry of a source, which `commands/source.ts` combines with sinks and queries. */
function source(
  name: string,
  description: string,
  load: () => Promise<{ readonly sourceCommand: import("./source/source-command.ts").SourceCommand }>,
): Entry {
  return entry("Run:", name, description, async () => {
    const [{ makeSource }, { sourceCommand }] = await Promise.all([import("./commands/source.ts"), load()]);
    return (signal, backends) => makeSource(sourceCommand, backends, signal);
  });
}

/** All commands, in the order in which help lists them. */
const entries: readonly Entry[] = [
  source("kube", "watch the API server; serve, save or apply its Services", () => import("./source/kube.ts")),
  source(
    "file",
    "read manifests or state files; serve, save or apply their Services",
    () => import("./source/file.ts"),
  ),
  source("api", "follow another watcher; serve, save or apply its Services (a relay)", () => import("./source/api.ts")),
  source(
    "replay",
    "play a recording of kpng record; serve, save or apply its Services",
    () => import("./source/replay.ts"),
  ),
  source(
    "simulate",
    "make up a cluster that changes all the time; serve, save or apply its Services",
    () => import("./source/simulate.ts"),
  ),
  entry("Run:", "local", "run a backend for one node, with a remote watcher", async () => {
    return (await import("./commands/local.ts")).makeLocal;
  }),
  entry("Run:", "demo", "see it work: packets to a Service of manifests, in namespaces", async () => {
    return (await import("./commands/demo.ts")).makeDemo;
  }),
  query("Ask:", "status", "one screen: the watcher, its nodes, errors, and what to do"),
  query("Ask:", "get", "list what a watcher or a backend holds"),
  query("Ask:", "describe", "show everything about one object"),
  query("Ask:", "explain", "say what a node does with a packet, and why"),
  query("Ask:", "top", "live view of nodes that are not up to date, and of changes"),
  query("Debug:", "analyze", "find what is probably wrong, and what to do about it"),
  query("Debug:", "trace", "show how long changes took to reach the nodes"),
  query("Debug:", "record", "record the state of a watcher and its changes, for kpng replay"),
  query("Debug:", "bug-report", "record a watcher with all its nodes, findings and versions"),
  entry("Debug:", "conformance", "check that a backend, in any language, keeps the protocol", async () => {
    return (await import("./commands/conformance.ts")).makeConformance;
  }),
  entry("Administer:", "certificates", "make a CA and certificates for watchers and clients", async () => {
    return (await import("./commands/certificates.ts")).makeCertificates;
  }),
  entry("Administer:", "completion", "print a script that completes commands in a shell", async () => {
    return (await import("./commands/completion.ts")).makeCompletion;
  }),
  entry("Administer:", "version", "print the version of this program and of the watcher", async () => {
    return (await import("./commands/version.ts")).makeVersion;
  }),
  entry(undefined, "connect", "", async () => (await import("./commands/connect.ts")).makeConnect),
  entry(undefined, "__complete", "", async () => (await import("./commands/completion.ts")).makeAnswer),
];

/**
 * Moves options that precede the command, as in `kpng --context prod status`, to the end, where commander looks for
 * them. Pure.
 */
export function optionsLast(words: readonly string[]): readonly string[] {
  const option = /^--(?:kubeconfig|context|kpng-namespace)(=|$)/;
  const isValue = (index: number): boolean => option.exec(words[index - 1] ?? "")?.[1] === "";
  const start = words.findIndex((word, index) => !option.test(word) && !isValue(index));
  return start < 1 ? words : [...words.slice(start), ...words.slice(0, start)];
}

/**
 * Loads the commands that a command line can mean, and returns a function that makes the command tree from them. The
 * other commands are not loaded, because loading all takes half a second; the tree contains only their names and
 * descriptions, for help. A running command stops when `signal` aborts. Without `words`, loads everything.
 */
export async function loadKpng(words?: readonly string[]): Promise<(signal: AbortSignal) => Command> {
  const [first = ""] = words ?? [];
  // `help` and `__complete` name the command in a later word.
  const named = first === "help" || first === "__complete" ? words : [first];
  const isWanted = ({ name }: Entry): boolean => words === undefined || named?.includes(name) === true;
  const loaded = await Promise.all(entries.map(async (entry) => (isWanted(entry) ? await entry.load() : undefined)));
  const backends = await loadBackends(words);
  return (signal) => {
    const kpng = new Command("kpng")
      .description("A Kubernetes service proxy: one watcher for the cluster, a small backend on every node")
      .usage("COMMAND [options]")
      .version(formatVersion("kpng", packageJson.version), "-V, --version", "print the version")
      .addHelpText("after", "\nkpng COMMAND --help has the options and examples of a command.");
    for (const [index, { name, group, description }] of entries.entries()) {
      const command = loaded[index]?.(signal, backends, kpng) ?? new Command(name);
      kpng.addCommand(command.description(description).helpGroup(group ?? ""), { hidden: group === undefined });
    }
    const help = new Command("help").argument("[command]").helpOption(false).helpGroup("Administer:");
    return refuseHabits(kpng.addHelpCommand(help.description("print the help of a command")));
  };
}
