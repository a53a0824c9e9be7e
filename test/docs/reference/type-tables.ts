import { type BlockWriter, markdownTable } from "./fill-blocks.ts";
import { type DeclaredType, findType } from "./read-types.ts";

/** The public names of the backend kit. */
const index = "services/backend-kit/src/index.ts";

/**
 * Returns the writer of the types of the backend kit. It writes the named types, and each type of the repository that
 * their fields mention, once per document.
 *
 * *Shape of the argument:* `NodeView, ViewChange`: names that the kit exports.
 *
 * Errors: a name that the kit does not export, or of which everything is already written.
 */
export function makeTypeTables(): BlockWriter {
  const written = new Set<string>();
  return (argument) => {
    const types = argument.split(", ").map((name) => {
      const type = findType(index, name);
      if (type === undefined) throw new Error(`${index} exports no type ${name}`);
      return type;
    });
    const sections: string[] = [];
    // Grows while it is read: types that a type mentions follow it.
    for (const type of types) {
      if (written.has(type.name)) continue;
      written.add(type.name);
      sections.push(...sectionOf(type));
      types.push(...mentionedTypes(type));
    }
    if (sections.length === 0) throw new Error(`no type is left for "${argument}"`);
    return sections.slice(0, -1);
  };
}

function sectionOf(type: DeclaredType): readonly string[] {
  const { file, name, doc, text, members } = type;
  const paragraphs = doc === "" ? [] : [withLinks(file, withoutRemarksOnFiles(doc)), ""];
  const body =
    members === undefined
      ? ["```ts", ...text.split("\n"), "```"]
      : markdownTable(
          ["Field", "Type", "Meaning"],
          members.map((member) => [
            `\`${member.name}${member.isOptional ? "?" : ""}\``,
            linkedType(member.file, member.type),
            withLinks(member.file, member.doc.replaceAll(/\s+/g, " ")),
          ]),
        );
  return [`### ${name}`, "", ...paragraphs, ...body, ""];
}

/** The types of the repository that a type mentions, in order. */
function mentionedTypes({ file, text, members }: DeclaredType): readonly DeclaredType[] {
  const sources = members?.map((member) => ({ file: member.file, text: member.type })) ?? [
    { file, text: text.replaceAll(/\/\*\*[\s\S]*?\*\//g, "") },
  ];
  return sources.flatMap((source) =>
    [...source.text.matchAll(/\b[A-Z]\w*/g)].flatMap(([name]) => findType(source.file, name) ?? []),
  );
}

/** Code in which the name of each type of the repository is a link. */
function linkedType(file: string, type: string): string {
  const linked = type.replaceAll(/\b[A-Z]\w*/g, (name) =>
    findType(file, name) === undefined ? name : `\`${linkTo(name)}\``,
  );
  return `\`${linked}\``.replaceAll("``", "");
}

function withLinks(file: string, doc: string): string {
  return doc.replaceAll(/\{@link\s+([\w.]+)\}/g, (_all, name: string) => {
    const [owner = ""] = name.split(".");
    return findType(file, owner) === undefined ? `\`${name}\`` : linkTo(name, owner);
  });
}

function linkTo(name: string, target = name): string {
  return `[\`${name}\`](#${target.toLowerCase()})`;
}

/** Leaves out the sentences about source files, which are for readers of the code. */
function withoutRemarksOnFiles(doc: string): string {
  const paragraphs = doc.split("\n\n").map((paragraph) =>
    paragraph
      .split(/(?<=\.\s+)(?=[A-Z`])/)
      .filter((sentence) => !/\bthis\s+(?:file|folder)\b/.test(sentence))
      .join("")
      .trim(),
  );
  return paragraphs.filter((paragraph) => paragraph !== "").join("\n\n");
}
