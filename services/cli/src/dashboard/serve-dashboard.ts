import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { constants, type IncomingHttpHeaders } from "node:http2";
import type { AddressInfo } from "node:net";
import { reasonOf } from "@kpng/process/log.ts";
import { ProcessError } from "@kpng/process/process-error.ts";
import { aborted } from "@kpng/process/wait.ts";
import { otherSiteReason, webPageReason } from "@kpng/watcher/identity/refuse-web-page.ts";
import { requestHint } from "../inspect/query/request-hint.ts";
import type { WatcherSession } from "./watcher-session.ts";

/**
 * Requests that are passed on: the files and the event stream of the status page, and the queries of its script. Not
 * ReleaseDeletions: the caller may be connected by a unix socket, whose clients may change what a watcher serves.
 */
const allowed =
  /^\/((page\.js|page\.css|icon\.svg|live)?|kpng\.inspect\.v1\.InspectService\/(GetStatus|List\w+|Explain)\?.*)$/;

/** Headers of a request that mean something to the watcher. */
const passedHeaders = ["accept", "if-none-match"] as const;

/** Headers of a connection, which end here. */
const droppedHeaders = new Set(["connection", "keep-alive", "transfer-encoding", "content-length"]);

/**
 * Serves the status page of a watcher on loopback, with the credentials of `watcher`, until `signal` aborts.
 * `makeDashboard` calls it. Separate from `WatcherSession`, the connection to the watcher: this file faces the browser.
 *
 * Other users of the machine can connect to a port on loopback, and any web page can send requests to it. So every
 * address begins with a random word, which only the caller knows, and `Host`, `Origin` and `Sec-Fetch-Site` are
 * checked as in the watcher.
 *
 * `onListening` gets the address for the browser. Errors: LISTEN_FAILED.
 */
export async function serveDashboard(
  { watcher, port, onListening }: DashboardOptions,
  signal: AbortSignal,
): Promise<void> {
  const secret = randomBytes(16).toString("base64url");
  const server = createServer((request, response) => {
    const [, word = "", path = ""] = /^\/([^/?]*)(\/.*)?$/.exec(request.url ?? "") ?? [];
    const { headers } = request;
    const reason = webPageReason(headers.host, headers.origin) ?? otherSiteReason(headers, path === "/live");
    if (reason !== undefined) refuse(response, 403, reason);
    else if (!isEqual(word, secret)) refuse(response, 404, "open the address that kpng dashboard has printed");
    else if (path === "") response.writeHead(308, { location: `/${secret}/` }).end();
    else if (request.method !== "GET") refuse(response, 405, "the dashboard is read-only");
    else if (!allowed.test(path)) refuse(response, 404, "the dashboard does not serve this address");
    else pass(watcher, request, response, path);
  });
  server.maxConnections = 64;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause) => {
      reject(new ProcessError("LISTEN_FAILED", `cannot serve the dashboard on 127.0.0.1:${port}`, { cause }));
    });
    server.listen(port, "127.0.0.1", resolve);
  });
  onListening(`http://127.0.0.1:${(server.address() as AddressInfo).port}/${secret}/`);
  await aborted(signal);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** The watcher, the port on loopback (0 for a free one), and the receiver of the address. */
interface DashboardOptions {
  readonly watcher: WatcherSession;
  readonly port: number;
  readonly onListening: (url: string) => void;
}

/**
 * Asks the watcher for its page, so that a wrong address or missing rights show before `makeDashboard` prints an
 * address. Resolves without an answer when `signal` aborts. Errors: REQUEST_FAILED.
 */
export async function checkPage(watcher: WatcherSession, api: string, signal: AbortSignal): Promise<void> {
  const answer = await Promise.race([askForPage(watcher, api), aborted(signal)]);
  if (answer === undefined || answer.status === 200) return;
  const { status, text } = answer;
  const reason =
    status === 404
      ? "no status page there: an older version, a watcher with --inspect-api=false, or a backend"
      : (text.split("\n", 1)[0] ?? "");
  throw new ProcessError("REQUEST_FAILED", `${api}: ${reason}`);
}

/** Returns the status of the page and the beginning of its text. Errors: REQUEST_FAILED. */
function askForPage(watcher: WatcherSession, api: string): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const stream = watcher.get("/", {});
    let status = 0;
    let text = "";
    stream.setEncoding("utf8");
    stream.on("response", (headers) => {
      status = headers[":status"] ?? 0;
    });
    stream.on("data", (chunk: string) => {
      if (text.length < 1_000) text += chunk;
    });
    stream.on("end", () => resolve({ status, text }));
    stream.on("error", (cause) => reject(new ProcessError("REQUEST_FAILED", failureText(api, cause))));
    // No effect after one of the events above.
    stream.on("close", () => reject(new ProcessError("REQUEST_FAILED", `${api}: the watcher closed the stream`)));
  });
}

function failureText(api: string, error: unknown): string {
  const message = `${api}: ${reasonOf(error)}`;
  const hint = requestHint(message);
  return hint === undefined ? message : `${message}\nHint: ${hint}`;
}

function pass(watcher: WatcherSession, request: IncomingMessage, response: ServerResponse, path: string): void {
  const headers = Object.fromEntries(passedHeaders.map((name) => [name, request.headers[name]]));
  let stream: ReturnType<WatcherSession["get"]>;
  try {
    stream = watcher.get(path, headers);
  } catch (error) {
    refuse(response, 502, reasonOf(error));
    return;
  }
  stream.once("response", (answer: IncomingHttpHeaders & { readonly ":status"?: number }) => {
    const kept = Object.entries(answer).filter(([name]) => !name.startsWith(":") && !droppedHeaders.has(name));
    response.writeHead(answer[":status"] ?? 502, Object.fromEntries(kept));
    response.flushHeaders();
    stream.pipe(response);
  });
  stream.once("error", (error) => {
    if (response.headersSent) response.destroy();
    else refuse(response, 502, `the watcher does not answer: ${reasonOf(error)}`);
  });
  // The connection to the watcher broke: a truncated answer must not look complete.
  stream.once("close", () => {
    if (!response.writableEnded) response.destroy();
  });
  response.once("close", () => stream.close(constants.NGHTTP2_CANCEL));
}

function refuse(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff" });
  response.end(`${text}\n`);
}

/** Takes the same time for every wrong word. */
function isEqual(a: string, b: string): boolean {
  const hash = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(a), hash(b));
}
