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
