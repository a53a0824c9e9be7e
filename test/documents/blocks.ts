import { readdirSync, readFileSync } from "node:fs";

/** A block of shell commands in a document. */
interface Block {
  /** *Shape:* `docs/inspect.md:62`, the line of the fence. */
  readonly place: string;
  readonly path: string;
  /** Each command with its continuation lines, as typed. Loops and pipelines over several lines are one command. */
  readonly commands: readonly string[];
}

/**
 * Returns the blocks of commands in the README, the documents and the guides. Decisions are not among them: they show
 * what was true when they were made.
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

/** Joins lines until a shell has a whole command: after a backslash, a pipe, or inside a loop or single quotes. */
function commandsOf(lines: readonly string[]): readonly string[] {
  const commands: string[] = [];
  let pending: string[] = [];
  for (const line of lines) {
    if (pending.length === 0 && (line.trim() === "" || line.startsWith("#"))) continue;
    pending.push(line);
    const [begin = ""] = pending;
    const isLoop = /^\s*for /.test(begin) && !/^\s*done\b/.test(line);
    const isGroup = begin.startsWith("{ ") && !pending.some((one) => one.includes("}"));
    const isQuoted = pending.join("").split("'").length % 2 === 0;
    if (/(\\|\||&&)$/.test(line.trimEnd()) || isLoop || isGroup || isQuoted) continue;
    commands.push(pending.join("\n"));
    pending = [];
  }
  return commands;
}

/** Commands that `run-blocks.nightly.test.ts` does not run. */
interface Elsewhere {
  readonly pattern: RegExp;
  /** Only in this document. Default: everywhere. */
  readonly path?: string | undefined;
  /** Test file that runs the command, or one that differs only in names. */
  readonly test: string;
}

const cluster = "test/cluster/documents.nightly.test.ts";
const pods = "test/e2e/quick.nightly.test.ts";

/** The commands that need more than one machine without network. Each entry must match a command. */
export const elsewhere: readonly Elsewhere[] = [
  { pattern: /^npm (ci|run demo)\b/, test: "test/documents/newcomer.nightly.test.ts" },
  { pattern: /^npm (link|run (-s kpng|bundle))\b/, test: "test/package/clone.nightly.test.ts" },
  { pattern: /\bgo run \.$/, test: "test/clients/clients.test.ts" },
  { pattern: /^npm (pack|install)\b/, test: "test/package/pack.nightly.test.ts" },
  { pattern: /^helm\b/, path: "docs/install.md", test: "test/manifests/helm.nightly.test.ts" },
  { pattern: /./, path: "docs/guides/release.md", test: "test/package/release.nightly.test.ts" },
  { pattern: /./, path: "docs/install.md", test: "test/manifests/cluster.test.ts" },
  { pattern: /./, path: "docs/guides/certificates.md", test: "test/manifests/cluster.test.ts" },
  { pattern: /./, path: "docs/guides/sizing.md", test: "test/manifests/containers.test.ts" },
  { pattern: /^(kubectl|node=)/, path: "docs/guides/migrate-from-kube-proxy.md", test: "test/e2e/instead/move.ts" },
  { pattern: /^docker (build|buildx)\b/, test: "test/deploy/image.test.ts" },
  { pattern: /^kubectl (get services|--namespace kube-system get pods)\b/, test: cluster },
  { pattern: /^(npx )?kpng kube (to-api|get)\b/, test: cluster },
  { pattern: /--token-file \/run\/secrets/, test: "test/manifests/containers.test.ts" },
  { pattern: /^kubectl --namespace kube-system (exec|logs)\b/, test: pods },
  { pattern: /kube-system (get configmap|create token)|^grpcurl -cacert/, path: "docs/inspect.md", test: pods },
  { pattern: /^kubectl -n kube-system /, path: "docs/guides/status-page.md", test: "test/page/status-page.test.ts" },
  { pattern: /--context prod$|^KUBECONFIG=prod\.yaml/, test: "test/cluster/from-a-laptop.test.ts" },
  { pattern: /^kubectl logs\b/, test: "test/process/inspect-commands.test.ts" },
  { pattern: /^export OTEL/, test: "test/process/traces.test.ts" },
];

/** Returns where a command of a document runs instead; undefined if it runs on one machine. */
export function whereElse(path: string, command: string): Elsewhere | undefined {
  return elsewhere.find((one) => (one.path === undefined || one.path === path) && one.pattern.test(command.trim()));
}
