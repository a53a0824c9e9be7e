/** A protocol of flows, probes and single packets. */
export type Protocol = "tcp" | "udp";

/** Where an agent, a process inside a network namespace, sends packets to. */
export interface Target {
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
  /** The source address, for a client that has several. */
  readonly from?: string | undefined;
}

/**
 * A request to send packets until `wanted` servers have answered, each with a name of its own, or until `atMost` packets
 * have been sent. If nobody answers the first batch, the agent sends no second one.
 */
export interface Ask extends Target {
  /** Number of packets sent at the same time. The first batch is always sent. */
  readonly atOnce: number;
  readonly atMost: number;
  readonly wanted: number;
  readonly timeoutMs: number;
}

/** TCP connections that are tried until the server with this name answers. */
export interface AwaitName {
  readonly address: string;
  readonly port: number;
  readonly name: string;
  readonly timeoutMs: number;
}

/** A flow to open: a TCP connection, or a series of datagrams from one port. */
export interface FlowTarget extends Target {
  /** Time to wait for the first answer. Default 0. */
  readonly answerMs?: number | undefined;
}

/**
 * A series of attempts: a new connection, or a datagram from a new port, every `everyMs` (default 50), less often while
 * many attempts have no answer. An attempt fails if there is no answer within `timeoutMs` (default 5 000, longer than TCP
 * needs to resend a lost SYN twice). If there is no answer, a UDP client sends its datagram `sendings` times in all
 * (default 1).
 */
export interface ProbeTarget extends Target {
  readonly everyMs?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly sendings?: number | undefined;
}

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
  /** Number of answers since the last look: reads with TCP, datagrams with UDP. */
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
  /** One line for each attempt without an answer: its start in milliseconds since the first attempt, and its outcome. */
  readonly failures: readonly string[];
}

/** The response to an HTTP request. */
export interface HttpAnswer {
  /** 0 if there was no response, in which case `body` is the error. */
  readonly status: number;
  readonly body: string;
}
