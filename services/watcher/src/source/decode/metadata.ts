import { z } from "zod";
import { nameField, stringMapField } from "./fields.ts";

/** What we read of any object's metadata. A manifest may leave the namespace out, as for kubectl. */
export const metadataShape = z.object({
  name: nameField,
  namespace: nameField.nullish().transform((namespace) => namespace ?? "default"),
  labels: stringMapField.nullish(),
  annotations: stringMapField.nullish(),
  deletionTimestamp: z.string().nullish(),
});
