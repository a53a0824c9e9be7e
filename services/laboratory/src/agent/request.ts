/** A protocol of flows, probes and single packets. */
export type Protocol = "tcp" | "udp";

/**
 * A request to an agent, a process that sends packets from inside a network namespace. Requests and replies are lines
 * of JSON on its standard input and output: {@link ReplyTo} gives the type of the reply to each kind. `id` identifies a
 * flow or a probe; the client chooses it, different from the ids of other flows or of other probes. A request about a
 * flow or probe must come after the reply to the request that started it.
 */
export type AgentRequest =
  /**
   * Sends packets until `wanted` different servers have answered, which are told apart by the name in their answers, or
   * until `atMost` packets have been sent. Ends after the first batch if nobody answers it.
   */
  | {
      readonly kind: "ask";
      readonly protocol: Protocol;
      readonly address: string;
      readonly port: number;
      /** The source address, for a client that has several. */
      readonly from?: string | undefined;
      /** Number of packets sent at the same time. The first batch is always sent. */
      readonly atOnce: number;
      readonly atMost: number;
      readonly wanted: number;
      readonly timeoutMs: number;
    }
  /** Retries a TCP connection until the server with this name answers. */
  | {
      readonly kind: "await";
      readonly address: string;
      readonly port: number;
      readonly name: string;
      readonly timeoutMs: number;
    }
  /** Sends one GET request. */
  | {
      readonly kind: "http";
      readonly address: string;
      readonly port: number;
      /** Default "/". */
      readonly path?: string | undefined;
      readonly timeoutMs: number;
    }
  /** Starts a flow: a TCP connection, or a series of datagrams from one port, that continues until `end`. */
  | {
      readonly kind: "open";
      readonly id: number;
      readonly protocol: Protocol;
      readonly address: string;
      readonly port: number;
      readonly from?: string | undefined;
      /** The server sends and the client only listens. TCP only. */
      readonly isServerSending?: boolean | undefined;
    }
  /** Returns the state of a flow. */
  | { readonly kind: "look"; readonly id: number }
  /** Stops sending, waits for missing answers, and returns the totals of a flow. */
  | { readonly kind: "finish"; readonly id: number }
  /** Closes a flow. */
  | { readonly kind: "end"; readonly id: number }
  /**
   * Starts a probe: a new connection, or a datagram from a new port, every `everyMs` (default 50) until `stop probe`,
   * less often while many attempts have no answer. An attempt fails if there is no answer within `timeoutMs` (default
   * 5 000, longer than TCP needs to resend a lost SYN twice). If there is no answer, a UDP client sends its datagram
   * `sendings` times in all (default 1).
   */
  | {
      readonly kind: "probe";
      readonly id: number;
      readonly protocol: Protocol;
      readonly address: string;
      readonly port: number;
      readonly from?: string | undefined;
      readonly everyMs?: number | undefined;
      readonly timeoutMs?: number | undefined;
      readonly sendings?: number | undefined;
    }
  /** Ends a probe and returns its totals. */
  | { readonly kind: "stop probe"; readonly id: number };

/** The replies, keyed by kind of request; true means that the request succeeded. */
export type ReplyTo<K extends AgentRequest["kind"]> = {
  /** One for each packet. */
  ask: readonly Answer[];
  /** False after `timeoutMs`. */
  await: boolean;
  http: HttpAnswer;
  open: boolean;
  look: FlowState;
  finish: FlowTotals;
  end: boolean;
  probe: boolean;
  "stop probe": ProbeTotals;
}[K];

/** The outcome of one connection or datagram. */
export type Answer =
  /** `name` answered, listening on `port`; `from` is the source address that it saw. */
  | { readonly kind: "answer"; readonly name: string; readonly port: number; readonly from: string }
  | { readonly kind: "refused" }
  | { readonly kind: "silent" }
  /** Any other failure, such as an unreachable network; `code` is the system's error code. */
  | { readonly kind: "error"; readonly code: string };

/** The state of a flow. */
export interface FlowState {
  /** Number of answers since the last `look`: reads with TCP, datagrams with UDP. */
  readonly answered: number;
  /** Sender of the last answer; undefined before the first. */
  readonly name: string | undefined;
  /** Reason why the flow ended, if it did. */
  readonly ended: string | undefined;
}

/** Totals of a flow: bytes with TCP, datagrams with UDP. */
export interface FlowTotals {
  readonly sent: number;
  readonly answered: number;
  /** Reason why the flow ended before `finish`, if it did. */
  readonly ended: string | undefined;
}

/** Totals of a probe. */
export interface ProbeTotals {
  readonly answered: number;
  /**
   * One line for each attempt without an answer: its start in milliseconds since the first attempt, and its outcome.
   */
  readonly failures: readonly string[];
}

/** The response to an HTTP request. */
export interface HttpAnswer {
  /** 0 if there was no response, in which case `body` is the error. */
  readonly status: number;
  readonly body: string;
}
