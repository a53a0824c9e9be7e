import { readFileSync } from "node:fs";
import { parseAst } from "vitest/node";
import { resolveImport } from "../../architecture/source-files.ts";

type Statement = ReturnType<typeof parseAst>["body"][number];
type Interface = Extract<Statement, { type: "TSInterfaceDeclaration" }>;
type Alias = Extract<Statement, { type: "TSTypeAliasDeclaration" }>;
type Heritage = Interface["extends"][number];
type Signature = Interface["body"]["body"][number];

/** An interface or a type alias of the repository. */
export interface DeclaredType {
  /** Path from the root of the repository. */
  readonly file: string;
  readonly name: string;
  /** Docstring without markers; "" if there is none. */
  readonly doc: string;
  /** Source text from the keyword on. */
  readonly text: string;
  /** Own and inherited members of an interface, in order; undefined for a type alias. */
  readonly members: readonly TypeMember[] | undefined;
}

/** A property or a method of an interface. */
export interface TypeMember {
  /** File that declares it; names in `type` and `doc` have their meaning there. */
  readonly file: string;
  readonly name: string;
  readonly isOptional: boolean;
  /** Source text without `readonly`, and without `undefined` if optional. *Shape:* `ServiceKey[]`. */
  readonly type: string;
  readonly doc: string;
}

/** Types of a source file by name. */
interface FileTypes {
  readonly text: string;
  readonly declared: ReadonlyMap<string, { readonly node: Interface | Alias; readonly start: number }>;
  /** Paths of the files that imported and re-exported names come from. */
  readonly imported: ReadonlyMap<string, string>;
}

const files = new Map<string, FileTypes>();

/**
 * Returns the interface or type alias that a name means in a file, followed through imports; undefined for classes,
 * type parameters and names of other packages. Errors: a kind of inheritance or member that this file does not read.
 */
export function findType(file: string, name: string): DeclaredType | undefined {
  const { text, declared, imported } = readFile(file);
  const target = imported.get(name);
  if (target !== undefined) return findType(target, name);
  const found = declared.get(name);
  if (found === undefined) return undefined;
  const { node, start } = found;
  const members = node.type === "TSInterfaceDeclaration" ? membersOf(file, node) : undefined;
  return { file, name, doc: docBefore(text, start), text: text.slice(node.start, node.end), members };
}

function readFile(file: string): FileTypes {
  const known = files.get(file);
  if (known !== undefined) return known;
  const text = readFileSync(file, "utf8");
  const declared = new Map<string, { node: Interface | Alias; start: number }>();
  const imported = new Map<string, string>();
  for (const statement of parseAst(text, { lang: "ts" }).body) {
    if (statement.type === "ImportDeclaration") {
      const target = resolveImport(file, statement.source.value);
      if (target?.endsWith(".ts")) for (const { local } of statement.specifiers) imported.set(local.name, target);
    } else if (statement.type === "ExportNamedDeclaration" && statement.source !== null) {
      const target = resolveImport(file, statement.source.value);
      for (const { start, end } of statement.specifiers) {
        if (target !== undefined) imported.set(text.slice(start, end).replace(/^type /, ""), target);
      }
    } else {
      const node = statement.type === "ExportNamedDeclaration" ? statement.declaration : statement;
      if (node?.type !== "TSInterfaceDeclaration" && node?.type !== "TSTypeAliasDeclaration") continue;
      declared.set(node.id.name, { node, start: statement.start });
    }
  }
  const read = { text, declared, imported };
  files.set(file, read);
  return read;
}

function membersOf(file: string, node: Interface): readonly TypeMember[] {
  const inherited = node.extends.flatMap((heritage) => inheritedMembers(file, heritage));
  return [...inherited, ...node.body.body.map((signature) => memberOf(file, signature))];
}

/** Returns the members of `X`, `Pick<X, "a" | "b">` or `Omit<X, "a">`. */
function inheritedMembers(file: string, { expression, typeArguments, start, end }: Heritage): readonly TypeMember[] {
  const { text } = readFile(file);
  const [first, keys] = typeArguments?.params ?? [];
  const operator = text.slice(expression.start, expression.end);
  const isPart = operator === "Pick" || operator === "Omit";
  const base = isPart && first !== undefined ? text.slice(first.start, first.end) : operator;
  const members = findType(file, base)?.members;
  if (members === undefined) throw new Error(`${file}: cannot read the members of ${text.slice(start, end)}`);
  const named = new Set([...text.slice(keys?.start ?? 0, keys?.end ?? 0).matchAll(/"(\w+)"/g)].map(([, key]) => key));
  return isPart ? members.filter(({ name }) => named.has(name) === (operator === "Pick")) : members;
}

function memberOf(file: string, signature: Signature): TypeMember {
  const { text } = readFile(file);
  if (signature.type !== "TSPropertySignature" && signature.type !== "TSMethodSignature") {
    throw new Error(`${file}: cannot read ${text.slice(signature.start, signature.end)}`);
  }
  const { key, optional: isOptional, start, end } = signature;
  const isMethod = signature.type === "TSMethodSignature";
  const type = text
    .slice(key.end, end)
    .replaceAll(/\/\*\*[\s\S]*?\*\//g, "")
    .replace(isMethod ? /^\??/ : /^\??:\s*\|?/, "")
    .replace(/;$/, "")
    .replaceAll(/\breadonly /g, "")
    .replaceAll(/\s+/g, " ")
    .trim()
    .replace(isOptional ? / \| undefined$/ : /$^/, "");
  return { file, name: text.slice(key.start, key.end), isOptional, type, doc: docBefore(text, start) };
}

/** Returns the docstring that ends before an index. */
function docBefore(text: string, end: number): string {
  const [, doc = ""] = /\/\*\*((?:[^*]|\*(?!\/))*)\*\/\s*$/.exec(text.slice(0, end)) ?? [];
  return doc.replaceAll(/\n[ \t]*\* ?/g, "\n").trim();
}
