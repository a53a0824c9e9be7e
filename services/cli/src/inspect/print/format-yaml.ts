import type { JsonObject } from "@bufbuild/protobuf";
import { Document } from "yaml";
import { hasUnsafe, terminalJson } from "./terminal-text.ts";

/**
 * Formats a value as a YAML document, without characters that change how a terminal shows it. Separate, because
 * `readOutputOptions` loads this file for `-o yaml` only: the library has 70 modules.
 */
export function formatYaml(value: JsonObject): string {
  const isUnsafe = hasUnsafe(JSON.stringify(value));
  const style = { lineWidth: 0, ...(isUnsafe ? { defaultStringType: "QUOTE_DOUBLE" as const } : {}) };
  const text = new Document(value, { aliasDuplicateObjects: false }).toString(style);
  return `---\n${isUnsafe ? terminalJson(text) : text}`;
}
