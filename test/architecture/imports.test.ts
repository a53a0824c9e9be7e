import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { describe, expect, test } from "vitest";

/** Which packages of ours a package may import; `docs/architecture.md` says why. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  model: [],
  process: [],
  watcher: ["model", "process"],
  "service-plan": ["model"],
  "backend-kit": ["model", "process", "service-plan"],
  laboratory: [],
  cli: ["*"],
};

/** A backend knows the kit, never the watcher and never another backend. */
const backendMayImport = ["model", "process", "service-plan", "backend-kit"];

/** Folders of the watcher in the order in which a change passes them: a folder imports only from those before it. */
const watcherPath = [
  "source",
  "store",
  "view",
  "items",
  "connection",
  "stream/delta",
  "stream/session",
  "stream/serve",
  "trace",
  "inspect",
];

interface Import {
  readonly file: string;
  readonly target: string;
}

const services = readdirSync("services");

function importsOf(root: string): Import[] {
  const files = readdirSync(root, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.includes("node_modules") && !file.startsWith("dist"))
    .map((file) => join(root, file));
  return files.flatMap((file) => {
    const matches = readFileSync(file, "utf8").matchAll(
      /^(?:import|export)\b[^;]*?from "([^"]+)";|import\("([^"]+)"\)/gm,
    );
    return [...matches].map((match) => ({ file, target: match[1] ?? match[2] ?? "" }));
  });
}

function isTest(file: string): boolean {
  return file.endsWith(".test.ts") || file.includes("/testing/");
}

describe("a package imports only what it may", () => {
  test.each(services)("%s", (service) => {
    const allowed = mayImport[service] ?? (service.startsWith("backend-") ? backendMayImport : undefined);
    expect(allowed, `services/${service} has no row in this test`).toBeDefined();
    const wrong = importsOf(join("services", service)).filter(({ file, target }) => {
      const other = /^@kpng\/([^/]+)/.exec(target)?.[1];
      if (other === "laboratory" && isTest(file)) return false;
      return other !== undefined && other !== service && !allowed?.includes("*") && !allowed?.includes(other);
    });
    expect(wrong).toEqual([]);
  });
});

test("nothing reaches into another package by a relative path", () => {
  const wrong = services.flatMap((service) => {
    const root = join("services", service);
    return importsOf(root).filter(
      ({ file, target }) =>
        !isTest(file) && target.startsWith(".") && !normalize(join(dirname(file), target)).startsWith(root),
    );
  });
  expect(wrong).toEqual([]);
});

test("inside the watcher a folder imports only from those before it", () => {
  const root = "services/watcher/src/";
  const wrong = importsOf(root).filter(({ file, target }) => {
    if (isTest(file) || !target.startsWith(".")) return false;
    const rank = (path: string): number => watcherPath.findIndex((folder) => path.startsWith(`${join(root, folder)}/`));
    const [from, to] = [rank(normalize(file)), rank(normalize(join(dirname(file), target)))];
    return from >= 0 && to > from;
  });
  expect(wrong).toEqual([]);
});

test("only the Kubernetes source knows the Kubernetes client", () => {
  const wrong = services
    .flatMap((service) => importsOf(join("services", service)))
    .filter(({ file, target }) => target.startsWith("@kubernetes/") && !file.includes("/source/kube/"));
  expect(wrong).toEqual([]);
});

test("no folder has a name that says nothing", () => {
  const folders = readdirSync("services", { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !entry.parentPath.includes("node_modules"))
    .map((entry) => entry.name);
  expect(folders.filter((name) => /^(utils?|common|lib|core|helpers?|misc|shared)$/.test(name))).toEqual([]);
});
