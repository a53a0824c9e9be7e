import { z } from "zod";
import { nameField, stringMapField } from "./fields.ts";

/** Metadata fields that all decoders read. The namespace defaults to "default", because manifests may omit it. */
export const metadataShape = z.object({
  name: nameField,
  namespace: nameField.nullish().transform((namespace) => namespace ?? "default"),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  deletionTimestamp: z.string().nullish(),
});
