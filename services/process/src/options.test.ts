import { Command } from "commander";
import { expect, test, vi } from "vitest";
import { Backoff } from "./clock.ts";
import { addOptions, nodeNameOption, parseDurationMs, parsePositiveDurationMs, parseWholeNumber } from "./options.ts";

test.each([
  { text: "500ms", ms: 500 },
  { text: "1m30s", ms: 90_000 },
  { text: "1.5h", ms: 5_400_000 },
  { text: "0", ms: 0 },
  { text: "576h", ms: 2_073_600_000 },
])("the duration $text is $ms ms", ({ text, ms }) => {
  expect(parseDurationMs(text)).toBe(ms);
});

test.each(["", "250", "-5s", "soon", "1e3", "10000h", "99999999999"])("%j is rejected as a duration", (text) => {
  expect(() => parseDurationMs(text)).toThrow();
});

test.each([
  [86_400_000, "24h"],
  [90_000, "90s"],
  [1_500, "1500ms"],
  [0, "0"],
])("the help shows the default of %j ms as %s", (ms, text) => {
  const command = addOptions(new Command(), [{ flags: "--wait <duration>", description: "a wait", default: ms }]);
  expect(command.helpInformation()).toContain(`(default: ${text}, `);
});

test("a delay of 0 is rejected where it would mean retrying without a pause", () => {
  expect(() => parsePositiveDurationMs("0s")).toThrow("at least 1ms");
  const backoff = new Backoff({ minMs: 0, maxMs: 30_000, random: () => 0.999 });
  expect(Array.from({ length: 12 }, () => backoff.nextMs()).at(-1)).toBeGreaterThan(1_000);
});

test("a number outside of its limits, or with anything but digits, is rejected", () => {
  const parse = parseWholeNumber("--limit", 1_048_576, 0xffff_ffff);
  expect(parse("1048576")).toBe(1_048_576);
  for (const text of ["512", "0", "64MiB", "-1048576", "1e7", "4294967296"]) {
    expect(() => parse(text), text).toThrow("--limit must be a whole number from 1048576 to 4294967295");
  }
});

test("an empty node name is rejected", () => {
  expect(() => nodeNameOption.parse?.(" ", undefined)).toThrow("must not be empty");
  expect(nodeNameOption.parse?.("n1", undefined)).toBe("n1");
});

test.each([
  { args: ["--flag"], value: true },
  { args: ["--flag=true"], value: true },
  { args: ["--flag=false"], value: false },
  { args: ["--flag=true", "--flag=false"], value: false },
  { args: ["--flag=false", "--flag"], value: true },
  { args: ["--flag", "rest"], value: true },
])("$args sets an option without a value to $value, whatever the environment says", ({ args, value }) => {
  for (const env of ["true", "false"]) {
    vi.stubEnv("KPNG_FLAG", env);
    const command = addOptions(new Command().argument("[rest]"), [{ flags: "--flag", description: "a flag" }]);
    expect(command.parse(args, { from: "user" }).opts()).toMatchObject({ flag: value });
    expect(command.helpInformation()).not.toContain("=true");
  }
});

test("an option without a value rejects other values than true and false", () => {
  const command = addOptions(new Command().exitOverride().configureOutput({ writeErr: () => undefined }), [
    { flags: "--flag", description: "a flag" },
  ]);
  expect(() => command.parse(["--flag=perhaps"], { from: "user" })).toThrow("unknown option '--flag=perhaps'");
});

test("an alias sets the option, and an invalid value of it is reported", () => {
  const errors: string[] = [];
  const parse = (...args: string[]) =>
    addOptions(new Command().exitOverride().configureOutput({ writeErr: (text) => errors.push(text) }), [
      nodeNameOption,
    ])
      .parse(args, { from: "user" })
      .opts();
  expect(parse("--node", "n1")).toEqual({ nodeName: "n1" });
  expect(() => parse("--node", "")).toThrow();
  expect(errors.join("")).toContain("option '--node <name>' argument '' is invalid. a node name must not be empty");
});
