import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Code, ConnectError } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { AnswerPage } from "@kpng/process/health/status-server.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { pageAssets } from "../gen/page-assets.ts";
import { isLoopback, rightsOfConnection, type Trust } from "../identity/client-rights.ts";
import { otherSiteReason, webPageReason } from "../identity/refuse-web-page.ts";
import { checkInspectionRight, joinRights, type Rights } from "../identity/rights.ts";
import type { TokenChecker } from "../identity/token-checker.ts";
import type { InspectContext } from "../inspect/inspect-context.ts";
import { makeConnectHandler } from "../stream/serve/connect-handler.ts";
import type { MoreService } from "../stream/serve/routes.ts";
import { LiveFeed } from "./live/live-feed.ts";

/** The inspect API that the page shows, and the clients that may see it. */
export interface StatusPageOptions {
  readonly api: MoreService & { readonly context: InspectContext };
  readonly trust: Trust;
  /** Checks the tokens of clients over loopback. Default: tokens are ignored. */
  readonly tokens?: TokenChecker | undefined;
  readonly log: Log;
}

/**
 * Returns the handler of the status page, for the port of health and metrics: `/` with its style and script, `/live`,
 * the event stream that keeps it current, and the queries of its script, as GET with JSON (Connect).
 *
 * Each request needs the right of inspection, as for the inspect API: that of the connection, or that of a token, which
 * the browser asks its user for as a password. The port speaks plain HTTP, so it accepts tokens over loopback only. Any
 * page in a browser can send requests to loopback, so `Host`, `Origin` and `Sec-Fetch-Site` are checked. All addresses in
 * the page are relative: it works behind a path prefix.
 */
export function statusPage({ api, trust, tokens, log }: StatusPageOptions): AnswerPage {
  const feed = new LiveFeed(api.context);
  const query = makeConnectHandler({
    log,
    routes: (router) => api.addTo(router),
    readMaxBytes: 16 * 1024,
    grpc: false,
    grpcWeb: false,
    acceptCompression: [],
  });
  return (path, response, request) => {
    const asset = assets.get(path);
    const isQuery = path.startsWith(`/${InspectService.typeName}/`);
    if (asset === undefined && path !== "/live" && !isQuery) return false;
    rightsOf(request, response, trust, tokens)
      .then((rights) => {
        const refusal = refusalOf(request, rights, asset !== undefined);
        if (refusal !== undefined) refuse(response, ...refusal);
        else if (asset !== undefined) sendAsset(request, response, asset);
        else if (isQuery) query({ request, response, rights, leave: new AbortController().signal });
        else sendLive(request, response, feed, log);
      })
      .catch((error: unknown) => {
        log.error("request for the status page failed", { reason: reasonOf(error) });
        response.destroy();
      });
    return true;
  };
}

/** Returns the rights of a request: those of its connection, and those of its token, whose end also ends the response. */
async function rightsOf(
  { socket, headers: { authorization } }: IncomingMessage,
  response: ServerResponse,
  trust: Trust,
  tokens: TokenChecker | undefined,
): Promise<Rights> {
  const rights = rightsOfConnection(socket, false, trust);
  if (rights.hasInspection || tokens === undefined || authorization === undefined) return rights;
  const [, basic] = /^Basic +(\S+)$/i.exec(authorization) ?? [];
  const [, password] = /^[^:]*:(.*)$/.exec(Buffer.from(basic ?? "", "base64").toString()) ?? [];
  const token = password ?? /^Bearer +(\S+)$/i.exec(authorization)?.[1] ?? "";
  if (!isLoopback(socket.remoteAddress ?? "")) return rights;
  const checked = await tokens.check(token, socket.remoteAddress);
  if (checked.kind === "refused") return { ...rights, tokenProblem: checked.problem };
  const known = checked.token;
  const end = (): void => void response.destroy();
  known.calls += 1;
  known.ended.addEventListener("abort", end, { once: true });
  response.once("close", () => {
    known.calls -= 1;
    known.ended.removeEventListener("abort", end);
  });
  return joinRights(rights, known.rights);
}

/** Returns the status and the reason if the request may not be answered. */
function refusalOf(
  { method, headers, socket }: IncomingMessage,
  rights: Rights,
  isAsset: boolean,
): readonly [status: number, text: string] | undefined {
  if (method !== "GET" && method !== "HEAD") return [405, "the status page is read-only"];
  const isCluster = !isLoopback(socket.remoteAddress ?? "");
  const reason = webPageReason(headers.host, headers.origin, { isCluster }) ?? otherSiteReason(headers, !isAsset);
  if (reason !== undefined) return [403, reason];
  try {
    checkInspectionRight(rights, undefined);
    return undefined;
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    return [code === Code.Unauthenticated ? 401 : 403, `${rawMessage}\n\n${remedy}`];
  }
}

const remedy =
  "Open the page over loopback, which kubectl port-forward or ssh -L carry to another machine. If the watcher does not " +
  "trust loopback, the password is a ServiceAccount token: kubectl create token.";

function sendAsset({ method, headers }: IncomingMessage, response: ServerResponse, asset: Asset): void {
  // A proxy that compresses makes the tag weak: `W/"…"`.
  if (headers["if-none-match"]?.includes(asset.tag) === true) {
    response.writeHead(304, { etag: asset.tag });
    response.end();
    return;
  }
  response.writeHead(200, {
    ...securityHeaders,
    "content-type": asset.type,
    "content-length": String(asset.body.length),
    // Asked again each time, because another version may run now; answered by 304.
    "cache-control": "no-cache",
    etag: asset.tag,
  });
  response.end(method === "HEAD" ? "" : asset.body);
}

function sendLive({ method }: IncomingMessage, response: ServerResponse, feed: LiveFeed, log: Log): void {
  if (feed.isFull) {
    refuse(response, 503, "the watcher serves as many status pages as it may: close another one");
    return;
  }
  const page = {
    write: (event: Buffer): boolean => response.write(event),
    onDrain: (drained: () => void): void => void response.on("drain", drained),
    fail: (error: unknown): void => {
      log.error("status page ended, and opened again by the browser: its data could not be computed", {
        reason: reasonOf(error),
      });
      response.end();
    },
  };
  response.once("close", () => feed.remove(page));
  response.writeHead(200, {
    ...securityHeaders,
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    // For nginx, which would otherwise collect the events.
    "x-accel-buffering": "no",
  });
  // An answer to HEAD has no body, so it must not take the place of a page.
  if (method === "HEAD") response.end();
  else feed.add(page);
}

function refuse(response: ServerResponse, status: number, text: string): void {
  const more =
    status === 405 ? { allow: "GET, HEAD" } : status === 401 ? { "www-authenticate": 'Basic realm="kpng"' } : {};
  response.writeHead(status, { ...securityHeaders, ...more, "content-type": "text/plain; charset=utf-8" });
  response.end(`${text}\n`);
}

/**
 * Nothing but the files of this origin is loaded, nothing inline is executed, and the script can assign HTML only
 * through its own policy `kpng`, which takes the results of its `html` template.
 */
const securityHeaders = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types kpng",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};

interface Asset {
  readonly type: string;
  readonly body: Buffer;
  readonly tag: string;
}

function assetOf(type: string, text: string): Asset {
  const body = Buffer.from(text);
  const tag = `"${createHash("sha256").update(body).digest("base64url").slice(0, 22)}"`;
  return { type: `${type}; charset=utf-8`, body, tag };
}

const assets: ReadonlyMap<string, Asset> = new Map([
  ["/", assetOf("text/html", pageAssets.document)],
  ["/page.css", assetOf("text/css", pageAssets.style)],
  ["/page.js", assetOf("text/javascript", pageAssets.script)],
  ["/icon.svg", assetOf("image/svg+xml", pageAssets.icon)],
]);
