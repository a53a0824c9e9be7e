import { hostname } from "node:os";
import { type Command, InvalidArgumentError, Option } from "commander";
import { ProcessError } from "./process-error.ts";

/** A command-line option. */
export interface OptionSpec {
  /**
   * Name and value in commander's notation, e.g. `--listen <url...>`. The default of a `<duration>` is in milliseconds.
   */
  readonly flags: string;
  readonly description: string;
  readonly default?: unknown;
  /**
   * Environment variable that sets the option; false if there is none, because the option is an action. Default: KPNG_
   * and the flag in capitals, e.g. KPNG_NODE_NAME for `--node-name`.
   */
  readonly env?: string | false | undefined;
  /**
   * Other names of the option, which help does not show, e.g. `--api-client-tls-ca`. Each has its own environment
   * variable.
   */
  readonly aliases?: readonly string[] | undefined;
  /** True if few users need the option: only `--help-all` lists it, below the others. Default false. */
  readonly isExpert?: boolean | undefined;
  /**
   * Converts the text to the option's value. `previous` is the value from the option's last occurrence, or the default.
   * Errors: InvalidArgumentError.
   */
  readonly parse?: ((text: string, previous: unknown) => unknown) | undefined;
}

/** Heading of the options with `isExpert` in help. */
export const expertGroup = "Options for experts:";

/** Adds options to a command. Each can also be set by its environment variable; the flag takes precedence. */
export function addOptions(command: Command, specs: readonly OptionSpec[]): Command {
  for (const spec of specs) {
    const option = new Option(spec.flags, spec.description);
    if (spec.isExpert === true) option.helpGroup(expertGroup);
    const isDuration = spec.flags.includes("<duration>");
    if (spec.default !== undefined)
      option.default(spec.default, isDuration ? formatDurationMs(spec.default) : undefined);
    const { parse = (text: string): unknown => text } = spec;
    // Accept `-o=json` as kubectl does; commander would take "=json" as the value.
    if (option.short !== undefined && !option.isBoolean())
      option.argParser((text: string, previous) => parse(text.replace(/^=/, ""), previous));
    else if (spec.parse !== undefined) option.argParser(spec.parse);
    const name = envName(spec, option);
    // Commander treats any value of the variable as true, so KPNG_MASQUERADE_ALL=false would masquerade.
    if (name !== undefined && (!option.isBoolean() || parseBoolean(name, process.env[name]))) option.env(name);
    command.addOption(option);
    if (option.isBoolean()) addBooleanValues(command, option);
    for (const alias of spec.aliases ?? []) addAlias(command, option, alias);
  }
  return command;
}

/** Returns the variable of an option, or of an alias if only that is set; undefined for an action. */
function envName({ env, aliases = [] }: OptionSpec, option: Option): string | undefined {
  if (env === false) return undefined;
  const name = env ?? variableOf(option.name().replace(/^no-/, ""));
  const others = aliases.map((alias) => variableOf(alias.slice(2)));
  return [name, ...others].find((one) => process.env[one] !== undefined) ?? name;
}

/** *Shape:* `KPNG_NODE_NAME` for `node-name`. */
function variableOf(name: string): string {
  return `KPNG_${name.replaceAll("-", "_").toUpperCase()}`;
}

/**
 * Returns the description of an option for help. It includes the default if that is informative, and the environment
 * variable if its name does not follow from the option's name.
 */
export function describeOption(option: Option): string {
  const { description, defaultValue: value, defaultValueDescription, envVar } = option;
  const isObvious = option.isBoolean() || value === undefined || value === "" || String(value) === "";
  const notes = [
    isObvious ? undefined : `default: ${defaultValueDescription ?? String(value)}`,
    envVar === undefined || envVar === variableOf(option.name().replace(/^no-/, "")) ? undefined : `env: ${envVar}`,
  ].filter((note) => note !== undefined);
  return notes.length === 0 ? description : `${description} (${notes.join(", ")})`;
}

/** Adds an option that parses and sets the value of `option` under another name. */
function addAlias(command: Command, option: Option, alias: string): void {
  const other = new Option(option.flags.replace(option.long ?? "", alias)).hideHelp();
  if (option.parseArg !== undefined) other.parseArg = option.parseArg;
  other.attributeName = () => option.attributeName();
  command.addOption(other);
}

/** Also accepts `--flag=true` and `--flag=false`, as kube-proxy's flags are often written. */
function addBooleanValues(command: Command, flag: Option): void {
  for (const value of [true, false]) {
    command.addOption(new Option(`${flag.long}=${value}`).hideHelp());
    command.on(`option:${flag.name()}=${value}`, () =>
      command.setOptionValueWithSource(flag.attributeName(), value, "cli"),
    );
  }
}

/** Parses the environment variable of a boolean option; true if it is not set. Errors: BAD_OPTION. */
function parseBoolean(name: string, value: string | undefined): boolean {
  if (value === undefined || /^(1|true|yes)$/i.test(value)) return true;
  if (/^(|0|false|no)$/i.test(value)) return false;
  throw new ProcessError("BAD_OPTION", `${name}="${value}" is neither true nor false`);
}

/** Maximum delay of a Node.js timer, 24.8 days; Node.js replaces a longer delay with 1 ms. */
const maxTimerMs = 0x7fff_ffff;

/**
 * Parses a duration as Go writes it ("500ms", "2s", "1m30s", "1h"), or 0; at most 24 days. A number without a unit is
 * refused, because it could mean seconds or milliseconds. Returns milliseconds.
 */
export function parseDurationMs(text: string): number {
  const durationMs = toMs(text);
  if (durationMs > maxTimerMs) throw new InvalidArgumentError(`"${text}" is too long: at most 24 days (576h)`);
  return durationMs;
}

/** Parses a duration of at least 1 ms; see {@link parseDurationMs}. */
export function parsePositiveDurationMs(text: string): number {
  const durationMs = parseDurationMs(text);
  if (durationMs < 1) throw new InvalidArgumentError(`"${text}" is too short: at least 1ms`);
  return durationMs;
}

/** Formats a duration in the largest unit that needs no fraction: "24h", "90s", "0". */
function formatDurationMs(ms: unknown): string {
  const [unit = "ms", factor = 1] = Object.entries(units).findLast(([, size]) => Number(ms) % size === 0) ?? [];
  return ms === 0 ? "0" : `${Number(ms) / factor}${unit}`;
}

/** Milliseconds per unit, ascending: `formatDurationMs` takes the last unit that divides. */
const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const;

function toMs(text: string): number {
  if (text === "0") return 0;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  if (parts.length === 0 || parts.map((part) => part[0]).join("") !== text) {
    throw new InvalidArgumentError(`"${text}" is not a duration: write 500ms, 2s, 1m30s or 1h`);
  }
  return parts.reduce((sum, part) => sum + Number(part[1]) * units[part[2] as keyof typeof units], 0);
}

/** Returns a parser of whole numbers from `min` to `max`; error messages contain `name`. */
export function parseWholeNumber(name: string, min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^-?\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`${name} must be a whole number from ${min} to ${max}`);
    }
    return value;
  };
}

/**
 * Returns an option that may be given several times. A value may also be a list separated by commas, as in an
 * environment variable. Given values replace the default. Commander's variadic options are not used, because they would
 * take a subcommand as another value, e.g. in `file -i a.yaml to-api`. `check` throws InvalidArgumentError for an
 * invalid text.
 */
export function repeatable(
  flags: string,
  description: string,
  standard: readonly string[] = [],
  check?: (text: string) => unknown,
): OptionSpec {
  const parse = (text: string, previous: unknown): readonly string[] => {
    check?.(text);
    // The same array, not an equal one: nothing has been given yet.
    const before = previous === standard ? [] : (previous as readonly string[]);
    return [...before, ...text.split(",").filter((part) => part !== "")];
  };
  return { flags, description: `${description}; repeatable`, default: standard, parse };
}

/** Returns a {@link repeatable} option that rejects an empty value, which most often comes from an unset variable. */
export function repeatableNonEmpty(flags: string, description: string, standard: readonly string[]): OptionSpec {
  return repeatable(flags, description, standard, (text) => parseNonEmptyText(text.replaceAll(",", "")));
}

/** Returns a parser of an option with a fixed set of values; error messages end with `hint`. */
export function oneOf<T extends string>(values: readonly T[], hint = ""): (text: string) => T {
  return (text) => {
    const value = values.find((one) => one === text);
    if (value !== undefined) return value;
    throw new InvalidArgumentError(`expected one of ${values.join(", ")}${hint}`);
  };
}

/** Returns an option with any text but the empty one, which most often comes from an unset variable. */
export function textOption(flags: string, description: string, standard?: string): OptionSpec {
  return { flags, description, default: standard, parse: parseNonEmptyText };
}

/** Returns the text unchanged. Errors: InvalidArgumentError if it is empty. */
export function parseNonEmptyText(text: string): string {
  if (text === "") throw new InvalidArgumentError("the value is empty");
  return text;
}

/** Option `--log-level`. */
export const logLevelOption: OptionSpec = {
  flags: "--log-level <level>",
  description: "lowest severity that is logged to standard error: off, error, info or debug",
  default: "info",
  parse: oneOf(["off", "error", "info", "debug"]),
};

/** Option `--node-name`. */
export const nodeNameOption: OptionSpec = {
  flags: "--node-name <name>",
  aliases: ["--node"],
  description: "name of the Node that this process serves",
  // The name that the kubelet gives its Node.
  default: hostname().trim().toLowerCase(),
  parse: parseNodeName,
};

/** Checks the syntax of a Node's name; a Node with that name need not exist. */
export function parseNodeName(text: string): string {
  // An empty name comes from an unset variable. No endpoint is on a node without a name, so Local traffic would be
  // dropped.
  if (text.trim() === "") throw new InvalidArgumentError("a node name must not be empty");
  if (text.length > 253) throw new InvalidArgumentError("a node name has at most 253 characters");
  return text;
}

/**
 * Checks a value of the label service.kubernetes.io/service-proxy-name; "" is allowed. An invalid value would never
 * select a Service.
 */
export function parseProxyName(text: string): string {
  if (text.length <= 63 && /^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/.test(text)) return text;
  throw new InvalidArgumentError(
    `"${text}" is not a label value: at most 63 letters, digits, "-", "_" and ".", with a letter or digit at both ends`,
  );
}

/** Addresses of the status server; see `health/status-server.ts`. */
export const statusServerOptions: readonly OptionSpec[] = [
  {
    flags: "--healthz-bind-address <host:port>",
    description:
      'serve /livez, /healthz and /readyz on this address; "" for none (default: none; in service proxies 127.0.0.1 and 10270 for iptables, 10272 nft, 10274 ipvs, 10276 userspace, 10284 ebpf)',
  },
  { flags: "--metrics-bind-address <host:port>", description: "serve /metrics on this address (default: disabled)" },
];
