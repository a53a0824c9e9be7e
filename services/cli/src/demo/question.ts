/** One connection or datagram to an address; what comes back is the name of who answered. */
export interface Question {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  /** How long to wait for the answer. */
  readonly timeoutMs: number;
}

/** What became of a question. */
export type Reply =
  | { readonly kind: "answer"; readonly name: string }
  /** `reason` is "timeout" or the system's code, e.g. "ECONNREFUSED". */
  | { readonly kind: "silence"; readonly reason: string };
