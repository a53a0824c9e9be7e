/**
 * Returns a shell command that sets the sysctls of a new namespace, before it has links. `buildNetwork`, the kernel
 * tests and the end-to-end tests run it in each network namespace that they add.
 *
 * `more` adds settings below /proc/sys/net, for example "ipv4/icmp_ratelimit 0"; a value may be empty. Redirects are
 * off, because results would otherwise depend on the order of packets. Duplicate address detection is off, because it
 * delays each IPv6 address by a second, and no other host is on these links.
 *
 * Separate from `Laboratory`, which adds namespaces without any settings.
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
  return values.map((line) => line.replace(/(\S+) (\S*)/, "echo $2 >/proc/sys/net/$1")).join(" && ");
}
