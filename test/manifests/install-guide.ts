import { readFileSync } from "node:fs";

const guide = readFileSync("docs/install.md", "utf8");

/**
 * Returns the shell commands below a heading of docs/install.md, without those of deeper headings' siblings. Tests run
 * them as they are written.
 */
export function commandsOfGuide(heading: string): readonly string[] {
  const [, section = ""] = guide.split(new RegExp(`^## ${heading}.*$`, "m"));
  const commands = blocksOf(section.split(/^## /m)[0] ?? "", "sh");
  if (commands.length === 0) throw new Error(`docs/install.md has no commands below "${heading}"`);
  return commands;
}

/** Returns the blocks of YAML in docs/install.md. */
export function yamlOfGuide(): readonly string[] {
  return blocksOf(guide, "yaml");
}

/** Returns the kustomization, the pod and the shell commands of docs/guides/static-pods.md. */
export function staticPodsGuide(): {
  readonly kustomization: string;
  readonly pod: string;
  readonly commands: readonly string[];
} {
  const text = readFileSync("docs/guides/static-pods.md", "utf8");
  const [kustomization, pod] = blocksOf(text, "yaml");
  if (kustomization === undefined || pod === undefined)
    throw new Error("docs/guides/static-pods.md needs a kustomization and a pod");
  return { kustomization, pod, commands: blocksOf(text, "sh") };
}

/** A block of a list item is indented like the item. */
function blocksOf(text: string, language: string): readonly string[] {
  return [...text.matchAll(new RegExp(`^( *)\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\`$`, "gm"))].map(
    ([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  );
}
