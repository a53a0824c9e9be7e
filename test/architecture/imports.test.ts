import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { type Import, importsOf, isProduction, isTest, readSourceFiles } from "./source-files.ts";

/** Packages of ours that a package may import; `docs/architecture.md` says why. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  model: [],
  process: [],
  source: ["model", "process"],
  watcher: ["model", "process", "service-plan", "source"],
  "service-plan": ["model"],
  "backend-kit": ["model", "process", "service-plan"],
  nftables: ["model", "process", "service-plan", "backend-kit"],
  laboratory: [],
  cli: ["*"],
};

/** A backend imports the kit, and neither the watcher nor another backend. */
const backendMayImport = ["model", "process", "service-plan", "backend-kit", "nftables"];

/** Support that tests of every package may import. */
const supportOfTests = /^@kpng\/(?:laboratory\/|process\/(?:testing\/|random\.ts$))/;

/** A source fills a store, so its tests need one. */
const watcherInSourceTests = /^@kpng\/watcher\//;

const services = readdirSync("services");
const imports = readSourceFiles("services/**/*.ts").flatMap(importsOf);

function packageOf(file: string): string {
  return file.split("/")[1] ?? "";
}

function describeImport({ file, specifier }: Import): string {
  return `${file} imports ${specifier}`;
}

describe("a package imports only the packages that it may import", () => {
  test.each(services)("%s", (service) => {
    const allowed = mayImport[service] ?? (service.startsWith("backend-") ? backendMayImport : undefined);
    expect(allowed, `services/${service} has no row in this test`).toBeDefined();
    const wrong = imports.filter(({ file, specifier }) => {
      const other = /^@kpng\/([^/]+)/.exec(specifier)?.[1];
      if (packageOf(file) !== service || other === undefined || other === service) return false;
      if (isTest(file) && supportOfTests.test(specifier)) return false;
      if (isTest(file) && service === "source" && watcherInSourceTests.test(specifier)) return false;
      return !allowed?.includes("*") && !allowed?.includes(other);
    });
    expect(wrong.map(describeImport)).toEqual([]);
  });
});

test("a file imports files of another package by the name of the package, not by a relative path", () => {
  const wrong = imports.filter(({ file, specifier, target = "" }) => {
    const isRelative = isProduction(file) && specifier.startsWith(".");
    return isRelative && !target.startsWith(`services/${packageOf(file)}/`);
  });
  expect(wrong.map(describeImport)).toEqual([]);
});

test("only the tests of the documents and the benchmarks import the command line", () => {
  const everything = [...imports, ...readSourceFiles("test/**/*.ts").flatMap(importsOf)];
  const wrong = everything.filter(
    ({ file, target = "" }) =>
      target.startsWith("services/cli/") && !/^(services\/cli|test\/(?:docs|scale))\//.test(file),
  );
  expect(wrong.map(describeImport)).toEqual([]);
});

test("a query of kpng loads the code of no backend, and of the sources only what reads recordings", () => {
  const files = readSourceFiles("services/**/*.ts");
  const loaded = new Set(
    ["kpng.ts", "commands/inspect.ts", "commands/version.ts"].map((name) => `services/cli/src/${name}`),
  );
  // A set grows while it is iterated. Types and what is loaded on demand cost a query nothing.
  for (const path of loaded) {
    const text = files.find(({ file }) => file === path)?.text ?? "";
    const code = text.replaceAll(/^(?:import|export) type [^;]*;|\bimport\("[^"]+"\)/gm, "");
    for (const { target } of importsOf({ file: path, text: code })) if (target !== undefined) loaded.add(target);
  }
  const allowed =
    /^services\/(?:(?:cli|process|model)\/|service-plan\/src\/frontend-claims\.ts$|source\/src\/(?:replay\/|watcher-error))/;
  expect(loaded.size).toBeGreaterThan(40);
  expect([...loaded].filter((path) => !allowed.test(path))).toEqual([]);
});

test("only source/src/kube imports the Kubernetes client", () => {
  const wrong = imports.filter(
    ({ file, specifier }) => specifier.startsWith("@kubernetes/") && !file.startsWith("services/source/src/kube/"),
  );
  expect(wrong.map(describeImport)).toEqual([]);
});
