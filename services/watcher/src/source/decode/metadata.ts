import { z } from "zod";
import { nameField, stringMapField } from "./fields.ts";

/**
 * Schema of the metadata fields that `decodeNode`, `decodeService` and `decodeSlice` read; separate, because all three
 * share it. The namespace defaults to "default", because manifests may omit it. Before it decodes an object, the source
 * `kube` reads name and version with `rawMetadata`.
 */
export const metadataShape = z.object({
  name: nameField,
  namespace: nameField.nullish().transform((namespace) => namespace ?? "default"),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  deletionTimestamp: z.string().nullish(),
});
