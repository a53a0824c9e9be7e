import { hostname } from "node:os";
import { backendOptions } from "@kpng/backend-kit/backend/backend-options.ts";
import { acceptConfigFile } from "@kpng/backend-kit/config/config-file.ts";
import { loadBackends } from "@kpng/cli/commands/backends.ts";
import { loadKpng } from "@kpng/cli/kpng.ts";
import { createLog } from "@kpng/process/log.ts";
import { addOptions } from "@kpng/process/options.ts";
import { Command, type Option } from "commander";

const [makeKpng, builtInBackends] = await Promise.all([loadKpng(), loadBackends()]);

/** An option of one command, as the reference shows it. */
export interface CommandOption {
  /** *Shape:* `--output`. */
  readonly long: string;
  /** *Shape:* `--output <format>`. */
  readonly flags: string;
  /** *Shape:* `-o`; "" if there is no short form. */
  readonly short: string;
  readonly description: string;
  /** As a user would write it; "" if there is none. */
  readonly standard: string;
  /** Environment name, or undefined. */
  readonly env: string | undefined;
}

/**
 * The options of each command and program, by its words: "kpng kube to-api", "kpng-iptables". An option of a parent
 * command is listed at the parent only.
 */
export function optionsByCommand(): ReadonlyMap<string, readonly CommandOption[]> {
  const found = new Map<string, readonly CommandOption[]>();
  const visit = (command: Command, parents: readonly string[]): void => {
    if (command.name() === "*") return;
    const words = [...parents, command.name()];
    found.set(words.join(" "), command.options.filter(isListed).map(describe));
    for (const child of command.commands) visit(child, words);
  };
  for (const program of makePrograms()) visit(program, []);
  return found;
}

/** False for `--version`, which every program has. */
function isListed({ hidden, long }: Option): boolean {
  return !hidden && long !== "--version";
}

/** `kpng` and the programs of the backends, made as their main.ts makes them. */
export function makePrograms(): readonly Command[] {
  const log = createLog("error");
  const backends = builtInBackends.map((backend) => {
    const program = new Command(`kpng-${backend.name}`).version("", "-V, --version", "print the version");
    addOptions(program, [...backend.options, ...backendOptions]);
    if (backend.proxyMode !== undefined) acceptConfigFile(program, backend.proxyMode, log);
    return program;
  });
  return [makeKpng(AbortSignal.abort()), ...backends];
}

function describe(option: Option): CommandOption {
  const stated = / \(default: (.*?)\)(?=$|; repeatable$)/.exec(option.description);
  return {
    long: option.long ?? option.flags,
    flags: option.flags.replace(/^-\w, /, ""),
    short: option.short ?? "",
    description: option.description.replace(stated?.[0] ?? "", ""),
    standard: stated?.[1] ?? formatDefault(option),
    env: option.envVar,
  };
}

function formatDefault({ long, flags, defaultValue, defaultValueDescription }: Option): string {
  if (long === "--node-name" && defaultValue === hostname().trim().toLowerCase())
    return "the host's name, in lower case";
  if (defaultValue === undefined || defaultValue === "") return "";
  if (Array.isArray(defaultValue)) return defaultValue.map((value) => `\`${value}\``).join(", ");
  if (typeof defaultValue !== "number") return `\`${String(defaultValue)}\``;
  if (defaultValueDescription !== undefined) return `\`${defaultValueDescription}\``;
  if (flags.includes("<bytes>")) return `${defaultValue / 2 ** 20} MiB`;
  return `\`${defaultValue}\``;
}
