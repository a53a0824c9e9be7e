/**
 * Returns whether iptables says that the kernel lacks what its variant needs: nf_tables or the legacy tables. Programs
 * of both variants are often installed on such a kernel. `--cleanup` skips the variant, which can have no rules.
 *
 * *Source:* the words of iptables 1.8.9; those about a generation id come from kernels without nf_tables.
 */
export function saysUnsupported(text: string): boolean {
  return /(?:Protocol|Operation) not (?:supported|available)|generation id: Invalid argument|need to insmod/.test(text);
}
