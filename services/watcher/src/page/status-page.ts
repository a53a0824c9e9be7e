import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { isIP } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import type { AnswerPage } from "@kpng/process/health/status-server.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import {
  checkInspectionRight,
  isLoopback,
  joinRights,
  type Rights,
  rightsOfConnection,
  type Trust,
} from "../identity/rights.ts";
import type { TokenChecker } from "../identity/token-checker.ts";
import { makeConnectHandler } from "../stream/serve/connect-handler.ts";
import type { MoreService } from "../stream/serve/routes.ts";

export interface StatusPageOptions {
  readonly api: MoreService;
  readonly trust: Trust;
  /** Checks the tokens of clients over loopback. Default: tokens are ignored. */
  readonly tokens?: TokenChecker | undefined;
  readonly log: Log;
}

/**
 * Returns the handler of the status page for the health and metrics port. It serves `/` with its style and script, and
 * the inspect API as POST with JSON (Connect).
 *
 * Each request needs the inspection right, either from its connection or from a token, which a browser sends as a
 * password. The port speaks plain HTTP, so it accepts tokens only over loopback. Any web page can send requests to
 * loopback, so `Host` and `Origin` are checked; a browser would send JSON from another site only if an OPTIONS request
 * permitted it. URLs in the page are relative, so that reverse proxies can add a path prefix.
 */
export function statusPage({ api, trust, tokens, log }: StatusPageOptions): AnswerPage {
  const assets: ReadonlyMap<string, Asset> = new Map([
    ["/", assetOf("text/html", "page.html")],
    ["/page.css", assetOf("text/css", "page.css")],
    ["/page.js", assetOf("text/javascript", "page.js")],
    ["/icon.svg", assetOf("image/svg+xml", "icon.svg")],
  ]);
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
    if (asset === undefined && !path.startsWith(`/${InspectService.typeName}/`)) return false;
    rightsOf(request, response, trust, tokens)
      .then((rights) => {
        const refusal = refusalOf(request, rights, asset === undefined ? ["POST"] : ["GET", "HEAD"]);
        if (refusal !== undefined) refuse(response, ...refusal);
        else if (asset !== undefined) sendAsset(request, response, asset);
        // This port is not drained, so nothing asks its clients to leave. The status server bounds its connections.
        else query({ request, response, rights, leave: new AbortController().signal });
      })
      .catch((error: unknown) => {
        log.error("request for the status page failed", { reason: reasonOf(error) });
        response.destroy();
      });
    return true;
  };
}

/**
 * Returns the rights of a request, which come from its connection and its token. When the token ends, so does the
 * response.
 */
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
  if (checked.kind === "refused") return { ...rights, problem: checked.problem };
  const ended = tokens.follow(token, socket.remoteAddress, response);
  ended.addEventListener("abort", () => void response.destroy(), { once: true });
  return joinRights(rights, checked.rights);
}

/** Returns the status, the reason and further headers if the request must be refused. */
function refusalOf(
  { method = "", headers, socket }: IncomingMessage,
  rights: Rights,
  methods: readonly string[],
): readonly [status: number, text: string, headers?: Readonly<Record<string, string>>] | undefined {
  if (!methods.includes(method))
    return [405, `the method ${method} is not allowed here`, { allow: methods.join(", ") }];
  const isRemote = !isLoopback(socket.remoteAddress ?? "");
  // Behind a reverse proxy, `Origin` differs from `Host`, but the browser states that the page itself sent the request.
  const origin = headers["sec-fetch-site"] === "same-origin" ? undefined : headers.origin;
  const reason = webPageReason(headers.host, origin, { isRemote });
  if (reason !== undefined) return [403, reason];
  try {
    checkInspectionRight(rights, undefined);
    return undefined;
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    const text = `${rawMessage}\n\n${remedy}`;
    return code === Code.Unauthenticated ? [401, text, { "www-authenticate": 'Basic realm="kpng"' }] : [403, text];
  }
}

/**
 * Returns the reason why a request seems to come from another web page in a browser; undefined if it does not. Pure.
 *
 * Any page can send requests to loopback, whose clients have rights. With a name that resolves to loopback (DNS
 * rebinding), the page can also read the responses; browsers then send that name as `Host`, and the page's `Origin`.
 * `isRemote` (the client is not on this machine) admits host names that no page on the internet has: names without a
 * dot, and names that end in .svc, .local or .internal.
 */
export function webPageReason(
  host: string | undefined,
  origin: string | undefined,
  { isRemote = false } = {},
): string | undefined {
  const name = (host ?? "").replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  const isLocal =
    name === "localhost" || isIP(name) !== 0 || (isRemote && /^[^.]+$|\.(svc|local|internal)\.?$/.test(name));
  if (host !== undefined && !isLocal) {
    return `the host "${host}" is not an address of this machine: use localhost or an IP address`;
  }
  if (origin !== undefined && origin !== `http://${host}` && origin !== `https://${host}`) {
    return `pages of "${origin}" may not use this watcher`;
  }
  return undefined;
}

const remedy =
  "Open the page over loopback, which kubectl port-forward or ssh -L carry to another machine. If the watcher does not " +
  "trust loopback, the password is a ServiceAccount token: kubectl create token.";

function refuse(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
) {
  response.writeHead(status, { ...securityHeaders, ...headers, "content-type": "text/plain; charset=utf-8" });
  response.end(`${text}\n`);
}

function sendAsset({ method }: IncomingMessage, response: ServerResponse, { type, body }: Asset): void {
  response.writeHead(200, {
    ...securityHeaders,
    "content-type": `${type}; charset=utf-8`,
    "content-length": String(body.length),
    // The next request may reach another version of the watcher.
    "cache-control": "no-store",
  });
  response.end(method === "HEAD" ? "" : body);
}

/** Nothing but the files of this origin is loaded, nothing inline is executed, and no text can become HTML. */
const securityHeaders = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};

interface Asset {
  readonly type: string;
  readonly body: Buffer;
}

function assetOf(type: string, name: string): Asset {
  const bundled = typeof bundledPage === "undefined" ? undefined : bundledPage[name];
  return { type, body: Buffer.from(bundled ?? readFileSync(new URL(`assets/${name}`, import.meta.url))) };
}

/** Contents of the files in `assets/`. Only bundles define this constant (deploy/images/bundle.ts). */
declare const bundledPage: Readonly<Record<string, string>> | undefined;
