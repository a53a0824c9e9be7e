import { isRecord } from "@kpng/model/is-record.ts";

/**
 * Metadata of an API object, read before (and even if) its kind is decoded. Watches and object caches need its name and
 * resourceVersion to order and to delete objects.
 */
export interface RawMetadata {
  /** *Shape:* `namespace/name`, or `/name` for objects without a namespace. Unique within a kind. */
  readonly key: string;
  readonly resourceVersion: string;
  readonly annotations: Readonly<Record<string, unknown>>;
}

/**
 * Returns the metadata of an API object; undefined for a value without metadata. Called by `watchOnce`, `ObjectCache`
 * and `ServiceCIDRCache`. Separate from the decoders in `source/decode`: they may find an object invalid, and its name
 * and version are needed even then.
 */
export function rawMetadata(object: unknown): RawMetadata | undefined {
  if (!isRecord(object) || !isRecord(object.metadata)) return undefined;
  const { namespace, name, resourceVersion, annotations } = object.metadata;
  return {
    key: `${typeof namespace === "string" ? namespace : ""}/${typeof name === "string" ? name : ""}`,
    resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
    annotations: isRecord(annotations) ? annotations : {},
  };
}
