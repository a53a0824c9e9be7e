import type { IncomingHttpHeaders } from "node:http";
import { isIP } from "node:net";

/**
 * Returns why an HTTP/1.1 call over loopback seems to come from a web page in a browser; undefined for other calls.
 * Pure. The handlers of `makeCallHandler` and of `kpng dashboard` (`serveDashboard`) call it, because clients over
 * loopback have every right. Separate from them, because they share both functions of this file.
 *
 * Any page can send requests to 127.0.0.1. With a name of its own that resolves to 127.0.0.1 (DNS rebinding), it can
 * also read the answers. Browsers then send that name as `Host`, and for calls with JSON the page's `Origin`. HTTP/2
 * needs no such check: browsers speak it over TLS only, where a certificate for that name is needed.
 */
export function webPageReason(host: string | undefined, origin: string | undefined): string | undefined {
  const name = (host ?? "").replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
  if (host !== undefined && name !== "localhost" && isIP(name) === 0) {
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
 * For an event stream, which has no end, `isStream` refuses links, too. Clients that are not browsers send none of
 * these headers. `makeCallHandler` calls it for queries, `statusPage` and `serveDashboard` for their pages. Pure.
 */
export function otherSiteReason(headers: IncomingHttpHeaders, isStream: boolean): string | undefined {
  const { "sec-fetch-site": site = "none", "sec-fetch-mode": mode, "sec-fetch-dest": target = "document" } = headers;
  if (site === "none" || site === "same-origin") return undefined;
  return mode === "navigate" && target === "document" && !isStream
    ? undefined
    : "pages of other sites may not use this address";
}
