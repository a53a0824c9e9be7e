import { isRecord } from "@kpng/model/is-record.ts";

/** What the reflector reads of any object before it is decoded. */
export interface RawMetadata {
  /** *Shape:* `namespace/name`, `/name` for an object without a namespace: unique within a kind. */
  readonly key: string;
  readonly resourceVersion: string;
  readonly annotations: Readonly<Record<string, unknown>>;
}

/** Returns undefined for what is no object with metadata. */
export function rawMetadata(object: unknown): RawMetadata | undefined {
  if (!isRecord(object) || !isRecord(object.metadata)) return undefined;
  const { namespace, name, resourceVersion, annotations } = object.metadata;
  return {
    key: `${typeof namespace === "string" ? namespace : ""}/${typeof name === "string" ? name : ""}`,
    resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
    annotations: isRecord(annotations) ? annotations : {},
  };
}
