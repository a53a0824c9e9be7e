import { readFileSync } from "node:fs";
import { configFields, type FieldRule, type FieldRules } from "@kpng/backend-kit/config/config-fields.ts";
import { expect, test } from "vitest";
import { knownOptions } from "./command-faults.ts";
import { distinctMatches } from "./documents.ts";
import { kubeProxyFlags } from "./kube-proxy-flags.ts";

interface Row {
  readonly flags: readonly string[];
  readonly fields: readonly string[];
  readonly options: readonly string[];
  readonly comparison: string;
}

const rows: readonly Row[] = readFileSync("docs/reference/kube-proxy-flags.md", "utf8")
  .split("\n")
  .filter((line) => line.startsWith("| ") && !line.startsWith("| kube-proxy |"))
  .map((line) => {
    const [flags = "", fields = "", options = "", comparison = ""] = line.replace(/^\| ?/, "").split(/ ?\| ?/);
    return { flags: codeIn(flags), fields: codeIn(fields), options: codeIn(options), comparison };
  });

function codeIn(cell: string): readonly string[] {
  return distinctMatches(cell, /`([^`]+)`/g);
}

/** The rules of all fields, without those of sections. */
function leaves(fields: FieldRules, path = ""): readonly (readonly [field: string, rule: FieldRule])[] {
  return Object.entries(fields).flatMap(([name, rule]) =>
    rule.kind === "section" ? leaves(rule.fields, `${path}${name}.`) : [[`${path}${name}`, rule] as const],
  );
}

const fieldRules = leaves(configFields).filter(([field]) => field !== "apiVersion" && field !== "kind");

test("the page names each flag of kube-proxy once, and no other", () => {
  expect(rows.flatMap(({ flags }) => flags).toSorted()).toEqual(kubeProxyFlags.toSorted());
});

test("each option that the page names for a flag or field exists", () => {
  const unknown = rows.flatMap(({ options }) => options).filter((option) => !knownOptions.has(option));
  expect(unknown).toEqual([]);
});

test("the page names each field of the configuration file, and no other", () => {
  expect([...new Set(rows.flatMap(({ fields }) => fields))].toSorted()).toEqual(
    fieldRules.map(([field]) => field).toSorted(),
  );
});

test.each(fieldRules)("the option for the field %s is the one that --config sets", (field, rule) => {
  const own = rows.filter(({ fields }) => fields.includes(field));
  const options = own.flatMap((row) => row.options);
  if (rule.kind === "option") expect(options).toEqual([rule.flags.find((flag) => knownOptions.has(flag))]);
  else expect(own.map(({ comparison }) => comparison).join()).toMatch(/not supported|ignored|program/);
});

test("each row says whether kpng does the same", () => {
  const unclear = rows.filter(({ options, comparison }) => {
    if (/^(?:same|differs)\b/.test(comparison)) return false;
    return !comparison.startsWith("not supported") || options.length > 0;
  });
  expect(unclear).toEqual([]);
});
