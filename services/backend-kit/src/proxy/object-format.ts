/** Machine-readable formats of output; "table" is for people. */
export type ObjectFormat = "json" | "yaml";

/** Writes an object as text that ends with a line end: JSON indented by so many spaces, or a YAML document. */
export type FormatObject = (value: object, indent?: number) => string;

/** Loads the YAML library only for YAML: it costs memory. */
export async function makeFormatObject(format: ObjectFormat): Promise<FormatObject> {
  if (format === "json") return (value, indent) => `${JSON.stringify(value, undefined, indent)}\n`;
  const { stringify } = await import("yaml");
  return (value) => `---\n${stringify(value)}`;
}
