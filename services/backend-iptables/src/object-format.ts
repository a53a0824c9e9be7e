/** How data goes to standard output where it is not a table for people. */
export type ObjectFormat = "json" | "yaml";

/** Writes an object as text that ends with a line end: JSON with so many spaces of indent, or a document of YAML. */
export type FormatObject = (value: object, indent?: number) => string;

/** The library for YAML is loaded for those who ask for it alone: it costs memory. */
export async function makeFormatObject(format: ObjectFormat): Promise<FormatObject> {
  if (format === "json") return (value, indent) => `${JSON.stringify(value, undefined, indent)}\n`;
  const { stringify } = await import("yaml");
  return (value) => `---\n${stringify(value)}`;
}
