import { hostname } from "node:os";
import { type Command, InvalidArgumentError, Option } from "commander";
import { ProcessError } from "./process-error.ts";

export interface OptionSpec {
  /** As commander writes it: `--listen <url...>`. */
  readonly flags: string;
  readonly description: string;
  readonly default?: unknown;
  /** Environment name; by default KPNG_ and the flag in capitals: `--node-name` is KPNG_NODE_NAME. */
  readonly env?: string | undefined;
  /** Turns the text into the value; throws InvalidArgumentError. */
  readonly parse?: ((text: string, previous: unknown) => unknown) | undefined;
}

/** Adds options to a command; each can also be set by its environment name, and the flag wins. */
export function addOptions(command: Command, specs: readonly OptionSpec[]): Command {
  for (const spec of specs) {
    const option = new Option(spec.flags, spec.description);
    if (spec.default !== undefined) option.default(spec.default);
    if (spec.parse !== undefined) option.argParser(spec.parse);
    const name = spec.env ?? `KPNG_${option.name().replace(/^no-/, "").replaceAll("-", "_").toUpperCase()}`;
    // Commander takes any value for a yes: KPNG_CLEANUP=false would remove all rules.
    if (!option.isBoolean() || isYes(name, process.env[name])) option.env(name);
    command.addOption(option);
    if (option.isBoolean()) addYesAndNo(command, option);
  }
  return command;
}

/** Takes `--flag=true` and `--flag=false` too, as Go programs do: kube-proxy's flags are often written like that. */
function addYesAndNo(command: Command, flag: Option): void {
  for (const value of [true, false]) {
    command.addOption(new Option(`${flag.long}=${value}`).hideHelp());
    command.on(`option:${flag.name()}=${value}`, () =>
      command.setOptionValueWithSource(flag.attributeName(), value, "cli"),
    );
  }
}

/** For an option without a value. Errors: BAD_OPTION for what is neither yes nor no. */
function isYes(name: string, value: string | undefined): boolean {
  if (value === undefined || /^(1|true|yes)$/i.test(value)) return true;
  if (/^(|0|false|no)$/i.test(value)) return false;
  throw new ProcessError("BAD_OPTION", `${name}="${value}" is neither true nor false`);
}

/** Longest time that a timer of Node.js can wait, 24.8 days; it takes any longer one for 1 ms. */
const maxTimerMs = 0x7fff_ffff;

/** Parses a Go-like duration ("500ms", "2s", "1m30s", "1h") or bare milliseconds into milliseconds; at most 24 days. */
export function parseDurationMs(text: string): number {
  const durationMs = toMs(text);
  if (durationMs > maxTimerMs) throw new InvalidArgumentError(`"${text}" is too long: at most 24 days (576h)`);
  return durationMs;
}

/** The same for a time that cannot be nothing. */
export function parsePositiveDurationMs(text: string): number {
  const durationMs = parseDurationMs(text);
  if (durationMs < 1) throw new InvalidArgumentError(`"${text}" is too short: at least 1ms`);
  return durationMs;
}

function toMs(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  if (parts.length === 0 || parts.map((part) => part[0]).join("") !== text) {
    throw new InvalidArgumentError(`"${text}" is no duration: write 500ms, 2s, 1m30s or 1h`);
  }
  return parts.reduce((sum, part) => sum + Number(part[1]) * units[part[2] as keyof typeof units], 0);
}

/** Parses a whole number within limits. */
export function parseWholeNumber(name: string, min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^-?\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`${name} is a whole number from ${min} to ${max}`);
    }
    return value;
  };
}

/**
 * An option that may be given several times; the values also come separated by commas, which is how an environment name
 * gives several. What is given replaces the default.
 */
export function repeatable(flags: string, description: string, standard: readonly string[] = []): OptionSpec {
  const parse = (text: string, previous: unknown): readonly string[] => [
    ...(previous === standard ? [] : (previous as readonly string[])),
    ...text.split(",").filter((part) => part !== ""),
  ];
  return { flags, description: `${description}; repeatable`, default: standard, parse };
}

/** The same for one that must have a value: an empty text, most often of a variable that is not set, is refused. */
export function repeatableSome(flags: string, description: string, standard: readonly string[]): OptionSpec {
  const spec = repeatable(flags, description, standard);
  const parse = (text: string, previous: unknown): unknown => {
    if (/^,*$/.test(text)) throw new InvalidArgumentError("it is empty");
    return spec.parse?.(text, previous);
  };
  return { ...spec, parse };
}

/** Refuses an empty text. */
export function parseSomeText(text: string): string {
  if (text === "") throw new InvalidArgumentError("it is empty");
  return text;
}

export const logLevelOption: OptionSpec = {
  flags: "--log-level <level>",
  description: "what to log on standard error: error, info or debug",
  default: "info",
  parse: (text) => {
    if (text !== "error" && text !== "info" && text !== "debug")
      throw new InvalidArgumentError("log level is error, info or debug");
    return text;
  },
};

export const nodeNameOption: OptionSpec = {
  flags: "--node-name <name>",
  description: "name of the Node that this process works for",
  // As kubelet names its Node.
  default: hostname().trim().toLowerCase(),
  parse: parseNodeName,
};

/** Takes the name of a Node, also one that the cluster does not know. */
export function parseNodeName(text: string): string {
  // As where a variable was not set: such a Node has no endpoint, and traffic under policy Local would be dropped.
  if (text.trim() === "") throw new InvalidArgumentError("a node name is not empty");
  if (text.length > 253) throw new InvalidArgumentError("a node name has at most 253 characters");
  return text;
}

/**
 * Parses a value of the label service.kubernetes.io/service-proxy-name, or "". One that no label can have would select
 * nothing, for ever.
 */
export function parseProxyName(text: string): string {
  if (text.length > 63) {
    throw new InvalidArgumentError(`it has ${text.length} characters, and a value of a label has at most 63`);
  }
  if (!/^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/.test(text)) {
    throw new InvalidArgumentError(
      `"${text}" is no value of a label: letters, digits, "-", "_" and ".", a letter or digit at both ends`,
    );
  }
  return text;
}

export const statusServerOptions: readonly OptionSpec[] = [
  {
    flags: "--healthz-bind-address <host:port>",
    description: "serve /livez, /healthz and /readyz there (default: not at all)",
  },
  { flags: "--metrics-bind-address <host:port>", description: "serve /metrics there (default: not at all)" },
];
