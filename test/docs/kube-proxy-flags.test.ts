import { readFileSync } from "node:fs";
import { configFields } from "@kpng/backend-kit/config/config-file.ts";
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

test("the page names each flag of kube-proxy once, and no other", () => {
  expect(rows.flatMap(({ flags }) => flags).toSorted()).toEqual(kubeProxyFlags.toSorted());
});

test("each option that the page names for a flag or field exists", () => {
  const unknown = rows.flatMap(({ options }) => options).filter((option) => !knownOptions.has(option));
  expect(unknown).toEqual([]);
});

test.each(Object.entries(configFields))(
  "the page has the option that --config sets for the field %s",
  (field, flag) => {
    const options = rows.filter(({ fields }) => fields.includes(field)).flatMap((row) => row.options);
    expect(options).toEqual([flag]);
  },
);

test("a field with an option on the page, besides the mode and those that are ignored, is one that --config reads", () => {
  const others = rows
    .filter(({ options, comparison }) => options.length > 0 && !/ignored/.test(comparison))
    .flatMap(({ fields }) => fields.filter((field) => configFields[field] === undefined));
  expect(others).toEqual([]);
});

test("each row says whether kpng does the same", () => {
  const unclear = rows.filter(({ options, comparison }) => {
    if (/^(?:same|differs)\b/.test(comparison)) return false;
    return !comparison.startsWith("not supported") || options.length > 0;
  });
  expect(unclear).toEqual([]);
});
