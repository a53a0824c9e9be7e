import { readFileSync } from "node:fs";

const installGuide = "docs/install.md";

/** Returns the shell commands below a heading of a guide, which tests run as they are written. */
export function commandsOfGuide(heading: string, guide = installGuide): readonly string[] {
  const [, section = ""] = readFileSync(guide, "utf8").split(new RegExp(`^## ${heading}.*$`, "m"));
  const commands = blocksOf(section.split(/^## /m)[0] ?? "", "sh");
  if (commands.length === 0) throw new Error(`${guide} has no commands below "${heading}"`);
  return commands;
}

/** Returns the blocks of YAML in docs/install.md. */
export function yamlOfGuide(): readonly string[] {
  return blocksOf(readFileSync(installGuide, "utf8"), "yaml");
}

/** Returns the kustomization and the shell commands of docs/guides/static-pods.md, and the pod that it copies. */
export function staticPodsGuide(): {
  readonly kustomization: string;
  readonly pod: string;
  readonly commands: readonly string[];
} {
  const text = readFileSync("docs/guides/static-pods.md", "utf8");
  const [kustomization] = blocksOf(text, "yaml");
  if (kustomization === undefined) throw new Error("docs/guides/static-pods.md needs a kustomization");
  const pod = readFileSync("deploy/kubernetes/static-pods/kpng-nft.yaml", "utf8");
  return { kustomization, pod, commands: blocksOf(text, "sh") };
}

/** A block of a list item is indented like the item. */
function blocksOf(text: string, language: string): readonly string[] {
  return [...text.matchAll(new RegExp(`^( *)\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\`$`, "gm"))].map(
    ([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  );
}
