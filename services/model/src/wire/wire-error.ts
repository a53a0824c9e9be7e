/** A message from a peer that cannot be understood. The stream that carried it is of no use any more. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code = "BAD_MESSAGE";

  constructor(message: string, options?: ErrorOptions) {
    super(`[BAD_MESSAGE] ${message}`, options);
  }
}
