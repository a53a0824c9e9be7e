/**
 * Returns a shell command that sets a namespace's kernel settings, before it has links; `more` are others of
 * /proc/sys/net, e.g. "ipv4/icmp_ratelimit 0".
 *
 * Redirects off, or results would depend on which packet came first. Duplicate address detection off: it keeps an IPv6
 * address from use for a second, and nobody else is on these links.
 */
export function kernelSettings(isRouter: boolean, more: readonly string[] = []): string {
  const on = isRouter ? 1 : 0;
  const values: readonly string[] = [
    `ipv4/ip_forward ${on}`,
    `ipv6/conf/all/forwarding ${on}`,
    ...["all", "default"].flatMap((scope) => [
      `ipv4/conf/${scope}/send_redirects 0`,
      `ipv4/conf/${scope}/accept_redirects 0`,
      `ipv4/conf/${scope}/rp_filter 0`,
      `ipv6/conf/${scope}/accept_redirects 0`,
      `ipv6/conf/${scope}/accept_dad 0`,
    ]),
    ...more,
  ];
  return values.map((line) => line.replace(/(\S+) (\S+)/, "echo $2 >/proc/sys/net/$1")).join(" && ");
}
