import { configFields, type FieldRules } from "@kpng/backend-kit/config/config-fields.ts";
import { assertNever } from "@kpng/model/assert-never.ts";
import { optionsByCommand } from "./command-options.ts";
import { type BlockWriter, markdownTable } from "./fill-blocks.ts";

/** The fields of KubeProxyConfiguration: the option that each sets, or why it is ignored. */
export const configTable: BlockWriter = () => {
  const known = new Set([...optionsByCommand().values()].flat().map(({ long }) => long));
  return markdownTable(["Field", "Sets option", "Ignored because"], rowsOf(configFields, "", known));
};

function rowsOf(fields: FieldRules, path: string, known: ReadonlySet<string>): readonly (readonly string[])[] {
  return Object.entries(fields).flatMap(([name, rule]) => {
    const field = `\`${path}${name}\``;
    switch (rule.kind) {
      case "head":
        return [];
      case "section":
        return rowsOf(rule.fields, `${path}${name}.`, known);
      case "unsupported":
        return [[field, "", rule.reason]];
      case "option": {
        const flags = rule.flags.filter((flag) => known.has(flag));
        if (flags.length > 0) return [[field, flags.map((flag) => `\`${flag}\``).join(", "), ""]];
        return [[field, "", "no backend has this option yet"]];
      }
      default:
        return assertNever(rule);
    }
  });
}
