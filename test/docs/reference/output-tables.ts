import { readFileSync } from "node:fs";
import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { enumWord } from "@kpng/cli/inspect/print/text.ts";
import { GetBackendResponseSchema, RuleLinesSchema } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { ChangeSchema } from "@kpng/model/gen/kpng/inspect/v1/change_pb.ts";
import { EndpointSchema, NodeSchema, ServiceSchema } from "@kpng/model/gen/kpng/inspect/v1/cluster_pb.ts";
import { EndpointDecisionSchema } from "@kpng/model/gen/kpng/inspect/v1/explain_pb.ts";
import { ExplainResponseSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { SubscriberSchema } from "@kpng/model/gen/kpng/inspect/v1/subscriber_pb.ts";
import { filesUnder } from "../documents.ts";
import { markdownTable } from "./fill-blocks.ts";

/** Message that each command prints with `-o json`: one, or a list of them. */
const outputs: Readonly<Record<string, DescMessage>> = {
  "get services": ServiceSchema,
  "get endpoints": EndpointSchema,
  "get nodes": NodeSchema,
  "get subscribers": SubscriberSchema,
  "get changes": ChangeSchema,
  "get view": EndpointDecisionSchema,
  "get backend": GetBackendResponseSchema,
  "get rules": RuleLinesSchema,
  explain: ExplainResponseSchema,
};

type JsonSchema = Readonly<Record<string, unknown>>;

/** Returns the JSON Schema of the output of all commands, one definition for each type of row and of its parts. */
export function outputSchema(): JsonSchema {
  const messages = allMessages();
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Output of kpng with -o json; with --watch, one object a line",
    $defs: Object.fromEntries(messages.map((message) => [message.name, messageSchema(message)])),
  };
}

const generated = /^<!-- output -->\n[\s\S]*/m;

/** Replaces the sections of `docs/reference/output.md`, one for each command, which follow `<!-- output -->`. */
export function fillOutput(document: string): string {
  return document.replace(generated, () => ["<!-- output -->", ...outputSections()].join("\n"));
}

function outputSections(): readonly string[] {
  const comments = fieldComments();
  const messages = allMessages();
  const uses = messages.flatMap(({ fields }) => fields.map(({ message }) => message));
  const isPart = (message: DescMessage): boolean => isOurs(message) && !Object.values(outputs).includes(message);
  /** A part of one field is described with it, under its path; a part of several in their types. */
  const isInlined = (message: DescMessage): boolean =>
    isPart(message) && uses.indexOf(message) === uses.lastIndexOf(message);
  const rowsOf = (message: DescMessage, path: string): readonly (readonly string[])[] =>
    message.fields.flatMap((field) => {
      const name = `${path}${field.jsonName}`;
      const meaning = comments.get(`${message.name}.${field.name}`) ?? "";
      const { message: part } = field;
      if (part === undefined || !isInlined(part)) return [[`\`${name}\``, typeText(field), meaning]];
      const inner = field.fieldKind === "list" ? `${name}[].` : `${name}.`;
      return [[`\`${name}\``, field.fieldKind === "list" ? "list" : "object", meaning], ...rowsOf(part, inner)];
    });
  return messages
    .filter((message) => !isPart(message))
    .flatMap((message) => [
      `## ${titleOf(message)}`,
      "",
      ...markdownTable(["Field", "Type", "Meaning"], joinAlike(rowsOf(message, ""))),
      "",
    ]);
}

/** The heading of the message of a command. *Shape:* `kpng get services: Service`. */
function titleOf(message: DescMessage): string {
  return `kpng ${Object.keys(outputs).find((one) => outputs[one] === message)}: ${message.name}`;
}

/** Joins successive fields with the same type and meaning. */
function joinAlike(rows: readonly (readonly string[])[]): readonly (readonly string[])[] {
  const joined: (readonly string[])[] = [];
  for (const [names = "", ...others] of rows) {
    const [before = "", ...same] = joined.at(-1) ?? [];
    if (same.join() !== others.join()) joined.push([names, ...others]);
    else joined.splice(-1, 1, [`${before}, ${names}`, ...others]);
  }
  return joined;
}

/** The messages of all commands and of their fields, each once. */
function allMessages(): readonly DescMessage[] {
  const found = new Set<DescMessage>();
  const add = (message: DescMessage): void => {
    if (found.has(message)) return;
    found.add(message);
    for (const { message: part } of message.fields) if (part !== undefined && isOurs(part)) add(part);
  };
  for (const message of Object.values(outputs)) add(message);
  return [...found];
}

function isOurs({ typeName }: DescMessage): boolean {
  return !typeName.startsWith("google.protobuf.");
}

function messageSchema(message: DescMessage): JsonSchema {
  const required = message.fields.filter((field) => field.fieldKind !== "message").map(({ jsonName }) => jsonName);
  return {
    type: "object",
    properties: Object.fromEntries(message.fields.map((field) => [field.jsonName, fieldSchema(field)])),
    required,
  };
}

function fieldSchema(field: DescField): JsonSchema {
  if (field.fieldKind === "map") return { type: "object", additionalProperties: { type: "string" } };
  return field.fieldKind === "list" ? { type: "array", items: valueSchema(field) } : valueSchema(field);
}

function valueSchema({ enum: values, message, scalar }: DescField): JsonSchema {
  if (values !== undefined)
    return { type: "string", enum: values.values.map(({ number }) => enumWord(values, number)) };
  if (message !== undefined) return isOurs(message) ? { $ref: `#/$defs/${message.name}` } : { type: "string" };
  if (scalar === ScalarType.STRING) return { type: "string" };
  return scalar === ScalarType.BOOL ? { type: "boolean" } : { type: "number" };
}

function typeText(field: DescField): string {
  if (field.fieldKind === "map") return "texts by name";
  const { enum: values, message, scalar } = field;
  let text = scalar === ScalarType.STRING ? "text" : scalar === ScalarType.BOOL ? "true or false" : "number";
  if (values !== undefined) {
    text = values.values
      .map(({ number }) => enumWord(values, number))
      .map((word) => (word === "" ? '""' : `\`${word}\``))
      .join(", ");
  } else if (message !== undefined) {
    text = isOurs(message)
      ? typeOfPart(message)
      : message.name === "Duration"
        ? 'duration: "0.0012s"'
        : "time: RFC 3339";
  }
  return field.fieldKind === "list" ? `list of ${text}` : text;
}

/** A link to the table of a command's message, or the fields of a part. */
function typeOfPart(message: DescMessage): string {
  if (Object.values(outputs).includes(message))
    return `[${message.name}](#${titleOf(message).toLowerCase().replaceAll(":", "").replaceAll(" ", "-")})`;
  const names = Map.groupBy(message.fields, typeText);
  return `object: ${[...names].map(([type, fields]) => `${fields.map(({ jsonName }) => `\`${jsonName}\``).join(", ")} (${type})`).join("; ")}`;
}

/** Comments of fields in the proto files. *Shape of the keys:* `Service.cluster_ips`. */
function fieldComments(): ReadonlyMap<string, string> {
  const comments = new Map<string, string>();
  for (const file of filesUnder("proto/kpng/inspect", ".proto")) {
    for (const [, message = "", body = ""] of readFileSync(file, "utf8").matchAll(
      /^message (\w+) \{\n([\s\S]*?)^\}/gm,
    )) {
      for (const [, comment = "", name = ""] of body.matchAll(
        /((?: *\/\/.*\n)+) *(?:optional |repeated )?[\w.<>, ]+ (\w+) = \d+/g,
      )) {
        comments.set(
          `${message}.${name}`,
          comment
            .replaceAll(/^ *\/\/ ?/gm, "")
            .trim()
            .replaceAll("\n", " "),
        );
      }
    }
  }
  return comments;
}
