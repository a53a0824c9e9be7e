import type { ProxyMode } from "@kpng/service-plan/outcomes.ts";

/** kube-proxy's rules for one family. */
export interface KubeProxyRules {
  readonly mode: ProxyMode;
  /** Output of iptables-save, reduced by {@link kubeProxyRules}, or of `nft -j list table`. */
  readonly text: string;
}

/** Chains of kube-proxy's iptables mode, and KUBE-FIREWALL, which it shares with the kubelet. */
const chainName =
  /^KUBE-(?:SERVICES|EXTERNAL-SERVICES|NODEPORTS|PROXY-FIREWALL|FIREWALL|FORWARD|POSTROUTING|MARK-MASQ|MARK-DROP|(?:SVC|SVL|XLB|EXT|FW|SEP)-[A-Z2-7]{16})$/;

/** The chain that every version has in table nat from its first sync on. */
const mark = ":KUBE-SERVICES ";

/**
 * True if the output of iptables-save has rules of kube-proxy in iptables mode, current or left behind. `openKubeProxy`
 * calls it to choose between the variants of iptables.
 */
export function hasKubeProxyRules(saved: string): boolean {
  return saved.includes(`\n${mark}`);
}

/**
 * Returns kube-proxy's part of the output of iptables-save: its chains, and the jumps to them in the order in which
 * packets meet them. `openKubeProxy` calls it on the output of iptables-save. Separate from it, because it runs no
 * program.
 *
 * Rules of other programs (the CNI, a firewall, kpng itself) are left out: shadow mode compares two service proxies,
 * and both would share the node with the same programs. Counters and times are removed, so that equal rules are equal
 * text.
 */
export function kubeProxyRules(saved: string): string {
  const lines: string[] = [];
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) lines.push(line);
    else if (line.startsWith(":KUBE-")) {
      const chain = line.slice(1, line.indexOf(" "));
      if (chainName.test(chain)) lines.push(`:${chain} - [0:0]`);
    } else if (line.startsWith("-A ")) {
      const chain = line.slice(3, line.indexOf(" ", 3));
      if (chain.startsWith("KUBE-") ? chainName.test(chain) : isJump(line)) lines.push(line);
    }
  }
  return `${lines.join("\n")}\n`;
}

function isJump(line: string): boolean {
  const target = / -[jg] (KUBE-\S+)/.exec(line)?.[1];
  return target !== undefined && chainName.test(target);
}
