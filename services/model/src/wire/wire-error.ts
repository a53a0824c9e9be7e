/**
 * A message from a peer is invalid. The stream that carried it must be closed. The decoders of this folder and of the
 * relay throw it. Separate from the decoders because they share it.
 */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code = "BAD_MESSAGE";

  constructor(message: string, options?: ErrorOptions) {
    super(`[BAD_MESSAGE] ${message}`, options);
  }
}
