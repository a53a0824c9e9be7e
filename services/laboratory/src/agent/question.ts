/** A protocol that an agent speaks. */
export type Protocol = "tcp" | "udp";

/** What an agent is asked to do; each question has one reply. */
export type Question =
  | {
      /** Sends until as many different names have answered as are wanted, or enough packets are sent. */
      readonly kind: "ask";
      readonly protocol: Protocol;
      readonly address: string;
      readonly port: number;
      /** The client's address, where it has several. */
      readonly from?: string | undefined;
      /** Packets sent at once, and at least. */
      readonly atOnce: number;
      readonly atMost: number;
      readonly wanted: number;
      readonly timeoutMs: number;
    }
  /** Tries a TCP connection again and again until this name answers. */
  | {
      readonly kind: "await";
      readonly address: string;
      readonly port: number;
      readonly name: string;
      readonly timeoutMs: number;
    }
  | {
      readonly kind: "http";
      readonly address: string;
      readonly port: number;
      /** Default "/". */
      readonly path?: string | undefined;
      readonly timeoutMs: number;
    }
  /** Opens a connection, or sends datagrams from one port, and goes on until told to end. */
  | {
      readonly kind: "open";
      readonly id: number;
      readonly protocol: Protocol;
      readonly address: string;
      readonly port: number;
      readonly from?: string | undefined;
      /** The server sends, and the client is silent. Of TCP. */
      readonly isServerSending?: boolean | undefined;
    }
  /** Says how it goes with what `open` started. */
  | { readonly kind: "look"; readonly id: number }
  /** Sends no more, waits for the answers that are missing, and says how much was lost. */
  | { readonly kind: "finish"; readonly id: number }
  | { readonly kind: "end"; readonly id: number }
  /** Makes a new connection, or sends a datagram from a new port, every 50 ms until told to stop. */
  | {
      readonly kind: "probe";
      readonly id: number;
      readonly protocol: Protocol;
      readonly address: string;
      readonly port: number;
      readonly from?: string | undefined;
    }
  /** Ends what `probe` started and says what became of it. */
  | { readonly kind: "stop probe"; readonly id: number };

/** What became of one packet. */
export type Answer =
  /** `name` answered on its port; `from` is the client's address that it saw. */
  | { readonly kind: "answer"; readonly name: string; readonly port: number; readonly from: string }
  | { readonly kind: "refused" }
  | { readonly kind: "silent" }
  /** What must not happen, e.g. an unreachable network; the system's code. */
  | { readonly kind: "error"; readonly code: string };

/** How a flow goes. */
export interface FlowState {
  /** Answers since the last look. */
  readonly answered: number;
  /** Who gave the last one; undefined before the first. */
  readonly name: string | undefined;
  /** Why it ended, if it did. */
  readonly ended: string | undefined;
}

/** What became of a whole flow: in bytes with TCP, in datagrams with UDP. */
export interface FlowTotals {
  readonly sent: number;
  readonly answered: number;
  /** Why it ended by itself, if it did. */
  readonly ended: string | undefined;
}

/** What became of a series of new connections. */
export interface ProbeTotals {
  readonly answered: number;
  /** One text for each that was not: when it began, in milliseconds since the first, and what came instead. */
  readonly failures: readonly string[];
}

export interface HttpAnswer {
  /** 0: no connection. */
  readonly status: number;
  readonly body: string;
}
