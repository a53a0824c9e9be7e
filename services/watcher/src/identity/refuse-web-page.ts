import { isIP } from "node:net";

/**
 * Returns why an HTTP/1.1 call over loopback looks like one that a web page made a browser send; undefined for other
 * calls. The server calls it before it gives the rights of a local client.
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
