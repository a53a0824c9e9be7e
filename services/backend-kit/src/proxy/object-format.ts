/** Machine-readable formats of the option `--output`, beside "table". */
export type ObjectFormat = "json" | "yaml";

/** Returns an object as text that ends with a line end: JSON indented by `indent` spaces, or a YAML document. */
export type FormatObject = (value: object, indent?: number) => string;

/**
 * Returns the function that prints in a format; used by `--diff`. The YAML library is loaded only for YAML, because it
 * needs memory.
 */
export async function makeFormatObject(format: ObjectFormat): Promise<FormatObject> {
  if (format === "json") return (value, indent) => `${JSON.stringify(value, undefined, indent)}\n`;
  const { stringify } = await import("yaml");
  return (value) => `---\n${stringify(value)}`;
}
