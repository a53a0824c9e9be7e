/**
 * A message from a peer is invalid. A stream that carried it must be closed. The decoders of this folder throw it, and
 * those of the watcher for global streams; its quick reader of acknowledgements catches it and leaves the message to
 * the full decoder. Separate from the decoders, because they share it.
 */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code = "BAD_MESSAGE";

  constructor(message: string, options?: ErrorOptions) {
    super(`[BAD_MESSAGE] ${message}`, options);
  }
}
