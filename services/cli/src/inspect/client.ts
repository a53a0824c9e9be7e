import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { Backoff } from "@kpng/process/clock.ts";
import { failureHint } from "@kpng/process/connection/failure-hint.ts";
import { reasonOf, withoutOpensslTrace } from "@kpng/process/log.ts";
import type { OptionSpec } from "@kpng/process/options.ts";
import { CodedError, ProcessError } from "@kpng/process/process-error.ts";
import { failureExitCode } from "@kpng/process/run/run-process.ts";
import { aborted, waitMs } from "@kpng/process/wait.ts";
import type { Options } from "../context/command-context.ts";
import { oneLine, terminalText } from "./print/text.ts";

/** A command that queries a watcher: a remote one (`kpng NAME`) or one in this process (`kpng SOURCE NAME`). */
export interface InspectCommand {
  readonly name: string;
  readonly aliases?: readonly string[] | undefined;
  /** Needed only for a subcommand: `kpng.ts` describes the others. */
  readonly description?: string;
  /** The argument in commander's notation, for example "[name...]"; absent for none. */
  readonly argument?: string | undefined;
  /** Checks each word of the argument; throws InvalidArgumentError. Default: accepts any word. */
  readonly parseArgument?: ((text: string) => string) | undefined;
  readonly options: readonly OptionSpec[];
  /** Further options of `kpng NAME`, which `kpng SOURCE NAME` lacks. Default: none. */
  readonly remoteOptions?: readonly OptionSpec[] | undefined;
  /** Shown below the options in help; COMMAND stands for the words that lead to this command. */
  readonly examples: string;
  run(question: Question): Promise<void>;
  /** True if the command queries a backend instead of a watcher. Default false. */
  readonly asksBackend?: boolean | undefined;
}

/** What a command gets from the command line. */
export interface Question {
  readonly replicas: readonly Replica[];
  /** Client of the replicas, which joins their answers, and its transport; see `joinReplicas`. */
  readonly client: InspectClient;
  readonly transport: Transport;
  /** The words of the argument. */
  readonly words: readonly string[];
  readonly options: Options;
  readonly signal: AbortSignal;
}

/** A watcher to query: the only one, or one of several replicas. */
export interface Replica {
  /** Address or pod, for messages that tell replicas apart; may be "" if there is only one. */
  readonly api: string;
  readonly transport: Transport;
  /** Releases the resources that the transport uses. Default: nothing to release. */
  close?(): void;
}

/**
 * Limits each unary call to a replica to `limitMs`, in milliseconds, so that one that hangs is reported, and cannot hold
 * back the answers of the others.
 */
export function withDeadline(replicas: readonly Replica[], limitMs = 10_000): readonly Replica[] {
  return replicas.map((replica) => ({
    ...replica,
    transport: {
      unary: (method, signal, timeoutMs = limitMs, ...rest) =>
        replica.transport.unary(method, signal, timeoutMs, ...rest),
      stream: (...call) => replica.transport.stream(...call),
    },
  }));
}

export type InspectClient = Client<typeof InspectService>;

export function inspectClient(transport: Transport): InspectClient {
  return createClient(InspectService, transport);
}

export interface PageRequest {
  readonly pageSize: number;
  readonly pageToken: string;
}

/** Rows per page. This is the maximum, so that a long list takes few calls. */
export const pageSize = 1_000;

/** Reads all pages of a list, and returns their rows. `filter` may override `pageSize`. */
export async function readPages<F extends object, P extends { readonly nextPageToken: string }, T>(
  list: (request: F & PageRequest) => Promise<P>,
  filter: F,
  rowsOf: (page: P) => readonly T[],
): Promise<T[]> {
  const rows: T[] = [];
  for (let pageToken = ""; ; ) {
    const page = await list({ pageSize, ...filter, pageToken });
    for (const row of rowsOf(page)) rows.push(row);
    pageToken = page.nextPageToken;
    if (pageToken === "") return rows;
  }
}

/** A watcher answers for an unknown node as for one without a zone or endpoints. */
export function warnUnknownNode(nodeName: string): void {
  process.stderr.write(`warning: node "${nodeName}" not found in the cluster\n`);
}

/**
 * Runs `work`, or stops waiting for it when `signal` aborts: a server that accepts a connection and says nothing would
 * otherwise hold the process for minutes. An RPC error becomes an error that names the server.
 *
 * Errors: REQUEST_FAILED if a request fails.
 */
export async function withRequestErrors(
  server: string,
  signal: AbortSignal,
  work: () => Promise<unknown>,
): Promise<void> {
  try {
    await Promise.race([work(), aborted(signal)]);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ConnectError)) throw error;
    throw new ProcessError("REQUEST_FAILED", `${server}: ${requestFailure(error)}`);
  }
}

const rejections: readonly Code[] = [Code.InvalidArgument, Code.Unimplemented, Code.PermissionDenied];

const noInspectApi =
  "no inspect API there: not a kpng server, an older version, a watcher with --inspect-api=false, or a watcher " +
  "in place of a backend's --inspect-socket (or the reverse)";

/** Returns the message for a failed request, without the server's name. */
export function requestFailure({ code, rawMessage, message }: ConnectError): string {
  // An HTTP error instead of a gRPC status means that the server does not have the service.
  const isMissing = code === Code.Unimplemented && rawMessage.startsWith("HTTP ");
  const what = isMissing ? noInspectApi : rejections.includes(code) ? "request rejected" : "request failed";
  return `${what}: ${oneLine(withoutOpensslTrace(message))}`;
}

/** Codes of errors that another attempt would not change. */
const finalCodes: readonly Code[] = [...rejections, Code.NotFound, Code.Unauthenticated];

/**
 * Repeats `work` when the watcher goes away, until `signal` aborts or `work` returns true. `work` must call `answered`
 * for each answer. Lost and restored connections are reported on standard error; they are normal, because a watcher
 * restarts whenever it is upgraded.
 *
 * Errors: errors of `work` before the first answer, and errors that another attempt would not change.
 */
export async function keepAsking(signal: AbortSignal, work: (answered: () => void) => Promise<boolean>): Promise<void> {
  const backoff = new Backoff({ minMs: 500, maxMs: 5_000 });
  let state: "new" | "connected" | "lost" = "new";
  const answered = (): void => {
    if (state === "lost") process.stderr.write("connected again; what follows begins with the current state\n");
    state = "connected";
    backoff.reset();
  };
  while (!signal.aborted) {
    let reason = "the watcher ended the stream";
    try {
      if (await work(answered)) return;
    } catch (error) {
      const isFinal = !(error instanceof ConnectError) || finalCodes.includes(error.code);
      if (signal.aborted || state === "new" || isFinal) throw error;
      reason = error.message;
    }
    if (signal.aborted) return;
    if (state !== "lost") process.stderr.write(`connection lost: ${terminalText(reason)}; trying again\n`);
    state = "lost";
    await waitMs(backoff.nextMs(), signal);
  }
}

/** Returns the message of an error without its code. */
export function plainReason(error: unknown): string {
  return terminalText(reasonOf(error).replace(/^\[[A-Z_]+\] /, ""));
}

/**
 * Runs a command that people use at a terminal. Its failures are shown as a line of plain text with a hint; other
 * commands log JSON.
 */
export async function withPlainErrors(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof CodedError)) throw error;
    const text = plainReason(error);
    const hint = text.includes("\nHint: ") ? undefined : failureHint(text);
    process.stderr.write(`Error: ${text}\n${hint === undefined ? "" : `Hint: ${hint}\n`}`);
    process.exitCode = failureExitCode();
  }
}
