/**
 * Returns true if iptables says that the kernel lacks the subsystem of its variant (nf_tables or the legacy tables).
 * The programs of both variants are often installed on such a kernel. `--cleanup` skips the unsupported variant, which
 * cannot have any rules.
 *
 * *Source:* messages of iptables 1.8.9; the message about a generation id appears on kernels without nf_tables.
 */
export function saysUnsupported(text: string): boolean {
  return /(?:Protocol|Operation|Address family) not (?:supported|available)|generation id: Invalid argument|need to insmod/.test(
    text,
  );
}
