import { createHash } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { reasonOf } from "@kpng/process/log.ts";
import { pageAssets } from "../gen/page-assets.ts";
import { otherSiteReason } from "../identity/refuse-web-page.ts";
import { checkInspectionRight } from "../identity/rights.ts";
import type { InspectContext } from "../inspect/inspect-context.ts";
import { formatPeer } from "../stream/serve/peer.ts";
import type {
  CallContext,
  PageHandler,
  PageReports,
  ServerRequest,
  ServerResponse,
} from "../stream/serve/request-handler.ts";
import { LiveFeed } from "./live/live-feed.ts";

/**
 * Returns the handler of the status page: `/` with its style and script, and `/live`, the event stream that keeps it
 * current. The script asks the inspect API for everything else. Every request needs the right of inspection, as for
 * the inspect API. All addresses in the page are relative, so that it works behind a path prefix.
 *
 * The sink `to-api` makes it unless `--inspect-api=false`, and the handler of `makeCallHandler` calls it for each
 * request other than a Watch. Separate from that handler, which knows only the gRPC services.
 */
export function statusPage(context: InspectContext): PageHandler {
  const feed = new LiveFeed(context);
  return (request, response, call, reports) => {
    const path = request.url?.split("?", 1)[0] ?? "";
    const asset = assets.get(path);
    if (asset === undefined && path !== "/live") return false;
    // An HTTP/2 stream whose request is not read counts as idle, which would end the connection of an open page.
    request.resume();
    const refusal = refusalOf(request, call, asset !== undefined, reports);
    if (refusal !== undefined) refuse(response, ...refusal);
    else if (asset !== undefined) sendAsset(request, response, asset);
    else sendLive(request, response, { ...call, ...reports, feed });
    return true;
  };
}

/** Returns the status and the reason if the request may not be answered. */
function refusalOf(
  { method, headers, socket }: ServerRequest,
  { rights }: CallContext,
  isAsset: boolean,
  { refusals }: PageReports,
): readonly [status: number, text: string] | undefined {
  if (method !== "GET" && method !== "HEAD") return [405, "the status page is read-only"];
  const reason = otherSiteReason(headers, !isAsset);
  if (reason !== undefined) {
    refusals.add("web-page", formatPeer(socket), { reason });
    return [403, reason];
  }
  try {
    checkInspectionRight(rights, undefined);
    return undefined;
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    return [code === Code.Unauthenticated ? 401 : code === Code.Unavailable ? 503 : 403, `${rawMessage}\n\n${remedy}`];
  }
}

const remedy = "Open it over loopback, for example through kubectl port-forward or ssh -L.";

function sendAsset({ method, headers }: ServerRequest, response: ServerResponse, asset: Asset): void {
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

function sendLive(
  { method, socket }: ServerRequest,
  response: ServerResponse,
  { leave, feed, refusals, log }: CallContext & PageReports & { readonly feed: LiveFeed },
): void {
  if (leave.aborted || feed.isFull) {
    if (feed.isFull) refusals.add("pages", formatPeer(socket));
    refuse(response, 503, "the watcher serves as many status pages as it may: close another one");
    return;
  }
  const page = {
    write: (event: Buffer): boolean => response.write(event) as boolean,
    onDrain: (drained: () => void): void => void response.on("drain", drained),
    fail: (error: unknown): void => {
      log.error("status page ended, and opened again by the browser: its data could not be computed", {
        reason: reasonOf(error),
      });
      response.end();
    },
  };
  const end = (): void => void response.end();
  leave.addEventListener("abort", end, { once: true });
  response.once("close", () => {
    leave.removeEventListener("abort", end);
    feed.remove(page);
  });
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
  const allow = status === 405 ? { allow: "GET, HEAD" } : {};
  response.writeHead(status, { ...securityHeaders, ...allow, "content-type": "text/plain; charset=utf-8" });
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
