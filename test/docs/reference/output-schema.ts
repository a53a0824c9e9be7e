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

/**
 * Returns the JSON Schema of the output of all commands, one definition for each type of row and of its parts. The
 * comments of the proto files are its descriptions.
 */
export function outputSchema(): JsonSchema {
  const messages = allMessages();
  const comments = fieldComments();
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Output of kpng with -o json; with --watch, one object a line",
    $defs: Object.fromEntries(messages.map((message) => [message.name, messageSchema(message, comments)])),
  };
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

function messageSchema(message: DescMessage, comments: ReadonlyMap<string, string>): JsonSchema {
  const commands = Object.keys(outputs).filter((command) => outputs[command] === message);
  const required = message.fields.filter((field) => field.fieldKind !== "message").map(({ jsonName }) => jsonName);
  return {
    ...(commands.length === 0 ? {} : { description: commands.map((command) => `kpng ${command}`).join(", ") }),
    type: "object",
    properties: Object.fromEntries(
      message.fields.map((field) => {
        const description = comments.get(`${message.name}.${field.name}`);
        return [field.jsonName, { ...fieldSchema(field), ...(description === undefined ? {} : { description }) }];
      }),
    ),
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
  if (message !== undefined && isOurs(message)) return { $ref: `#/$defs/${message.name}` };
  if (message !== undefined)
    return { type: "string", ...(message.name === "Duration" ? { examples: ["0.0012s"] } : { format: "date-time" }) };
  if (scalar === ScalarType.STRING) return { type: "string" };
  return scalar === ScalarType.BOOL ? { type: "boolean" } : { type: "number" };
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
