import type { IncomingHttpHeaders } from "node:http";
import { isIP } from "node:net";

/**
 * Returns why a request to the status page seems to come from another web page in a browser; undefined for others. Pure.
 *
 * Any page can send requests to loopback, whose clients have rights. With a name of its own that resolves to it (DNS
 * rebinding), it can also read the answers. Browsers then send that name as `Host`, and the page's `Origin`.
 * `isCluster` admits names that no page of the internet can have: those without a dot, and those of Services.
 */
export function webPageReason(
  host: string | undefined,
  origin: string | undefined,
  { isCluster = false } = {},
): string | undefined {
  const name = (host ?? "").replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  const isLocal =
    name === "localhost" || isIP(name) !== 0 || (isCluster && /^[^.]+$|\.(svc|local|internal)\.?$/.test(name));
  if (host !== undefined && !isLocal) {
    return `the host "${host}" is not an address of this machine: use localhost or an IP address`;
  }
  if (origin !== undefined && origin !== `http://${host}` && origin !== `https://${host}`) {
    return `pages of "${origin}" may not use this watcher`;
  }
  return undefined;
}

/**
 * Returns why a GET request is not answered, because a browser sent it for a page of another site; undefined for other
 * requests. Such a page cannot read the answer, but it could make the watcher compute thousands of them.
 *
 * A link that leads to the address is harmless, because it replaces the page; not so a frame, an image or a download.
 * For queries and the event stream, `isStream` refuses links, too. Clients that are not browsers send none of
 * these headers. Pure.
 */
export function otherSiteReason(headers: IncomingHttpHeaders, isStream: boolean): string | undefined {
  const { "sec-fetch-site": site = "none", "sec-fetch-mode": mode, "sec-fetch-dest": target = "document" } = headers;
  if (site === "none" || site === "same-origin") return undefined;
  return mode === "navigate" && target === "document" && !isStream
    ? undefined
    : "pages of other sites may not use this address";
}
