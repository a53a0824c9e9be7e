import { readdirSync, readFileSync } from "node:fs";

/** A block of shell commands in a document. */
export interface Block {
  /** *Shape:* `docs/inspect.md:62`, the line of the fence. */
  readonly place: string;
  readonly path: string;
  /** Each command with its continuation lines, as typed. Loops and pipelines over several lines are one command. */
  readonly commands: readonly string[];
}

/**
 * Returns the blocks of commands in the README, the documents and the guides, for `run-blocks.nightly.test.ts`, which runs
 * them, and `elsewhere.nightly.test.ts`. Decisions are not among them: they show what was true when they were made.
 */
export function readBlocks(): readonly Block[] {
  const folders = ["docs", "docs/guides", "docs/reference"];
  const paths = folders.flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.endsWith(".md"))
      .map((name) => `${folder}/${name}`),
  );
  return ["README.md", ...paths].flatMap(blocksOf);
}

function blocksOf(path: string): readonly Block[] {
  const text = readFileSync(path, "utf8");
  const fence = /^( *)```(sh|console)\n([\s\S]*?)^ *```$/gm;
  return [...text.matchAll(fence)].map(({ 1: indent = "", 2: language = "", 3: body = "", index }) => {
    const line = text.slice(0, index).split("\n").length;
    const lines = body.split("\n").map((one) => one.slice(indent.length));
    const typed = language === "console" ? typedLines(lines) : lines;
    return { place: `${path}:${line}`, path, commands: commandsOf(typed) };
  });
}

/** Lines that a person types: those after a prompt, and their continuations. The others are what is printed. */
function typedLines(lines: readonly string[]): readonly string[] {
  let continues = false;
  return lines.flatMap((line) => {
    const isTyped = continues || line.startsWith("$ ");
    continues = isTyped && line.endsWith("\\");
    return isTyped ? [line.replace(/^\$ /, "")] : [];
  });
}

/** Joins lines until a shell has a whole command: after a backslash, a pipe, or inside a loop. */
function commandsOf(lines: readonly string[]): readonly string[] {
  const commands: string[] = [];
  let pending: string[] = [];
  for (const line of lines) {
    if (pending.length === 0 && (line.trim() === "" || line.startsWith("#"))) continue;
    pending.push(line);
    const [begin = ""] = pending;
    const isLoop = /^\s*for /.test(begin) && !/^\s*done\b/.test(line);
    const isGroup = begin.startsWith("{ ") && !pending.some((one) => one.includes("}"));
    if (/(\\|\||&&)$/.test(line.trimEnd()) || isLoop || isGroup) continue;
    commands.push(pending.join("\n"));
    pending = [];
  }
  return commands;
}

/** Commands that `run-blocks.nightly.test.ts` does not run. */
export interface Elsewhere {
  /** Matches the commands. */
  readonly pattern: RegExp;
  /** Only in this document. Default: everywhere. */
  readonly path?: string | undefined;
  /** Test file that runs the command, or one that differs only in names; undefined if none can. */
  readonly test?: string | undefined;
  /** Why it does not run here. */
  readonly reason: string;
}

const needsPods = "needs a cluster with our pods";
const needsRegistry = "needs a registry of images";

/**
 * The commands of the documents that need more than one machine without network, each with the test that runs it
 * instead, or the reason why none does. Everything else runs: `elsewhere.nightly.test.ts` fails for an entry that matches
 * nothing.
 */
export const elsewhere: readonly Elsewhere[] = [
  { pattern: /^npm (ci|run demo)\b/, reason: "needs a fresh clone", test: "test/documents/newcomer.nightly.test.ts" },
  { pattern: /^npm link\b/, reason: "changes the machine", test: "test/package/clone.nightly.test.ts" },
  {
    pattern: /^npm run (-s kpng|bundle)\b/,
    reason: "writes into the clone",
    test: "test/package/clone.nightly.test.ts",
  },
  { pattern: /^npm pack\b/, reason: "writes into the clone", test: "test/package/pack.nightly.test.ts" },
  { pattern: /^npm (run (check|test)|test)\b/, reason: "is the suite that runs this test" },
  { pattern: /./, path: "docs/install.md", reason: needsPods, test: "test/manifests/cluster.test.ts" },
  { pattern: /^docker compose\b/, reason: needsRegistry, test: "test/deploy/containers.nightly.test.ts" },
  { pattern: /^docker (build|buildx|load)\b/, reason: needsRegistry, test: "test/deploy/image.test.ts" },
  { pattern: /^node deploy\/images\/build\.ts\b/, reason: "takes minutes", test: "test/e2e/quick.nightly.test.ts" },
  { pattern: /^ctr\b/, reason: "needs containerd", test: "test/deploy/archive.nightly.test.ts" },
  { pattern: /^(skopeo|grype|trivy|npm audit)\b/, reason: "needs a registry, or a scanner with its database" },
  { pattern: /^kubectl get services/, reason: "needs an API server", test: "test/cluster/documents.nightly.test.ts" },
  {
    pattern: /^(npx )?kpng kube (to-api|get)\b/,
    reason: "needs an API server",
    test: "test/cluster/documents.nightly.test.ts",
  },
  {
    pattern: /--token-file \/run\/secrets/,
    reason: "needs a token of a pod",
    test: "test/manifests/containers.test.ts",
  },
  {
    pattern: /^kubectl --namespace kube-system get pods\b/,
    reason: "needs an API server",
    test: "test/cluster/documents.nightly.test.ts",
  },
  {
    pattern: /^kubectl --namespace kube-system (exec|logs)\b/,
    reason: needsPods,
    test: "test/e2e/quick.nightly.test.ts",
  },
  { pattern: /^kubectl logs\b/, reason: needsPods, test: "test/process/bug-report.test.ts" },
  { pattern: /^\{ kubectl /, reason: "writes files of a host", test: "test/manifests/build.test.ts" },
  { pattern: /^export OTEL/, reason: "needs a collector", test: "test/cluster/traces.test.ts" },
];

/** Returns why a command of a document does not run on one machine; undefined if it does. */
export function whereElse(path: string, command: string): Elsewhere | undefined {
  return elsewhere.find((one) => (one.path === undefined || one.path === path) && one.pattern.test(command.trim()));
}
