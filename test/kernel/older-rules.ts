/**
 * Turns what iptables-save printed of our rules into what another version of us might have left: endpoints in chains of
 * their own, other hashes in the names of chains, other comments, a chain that is no longer known, and jumps that are
 * not the ones of today. Packets fare the same under both.
 *
 * *Shape:* the whole input of `iptables-restore`, with the rules of others as they were.
 */
export function olderRules(saved: string): string {
  const lines = saved.split("\n").flatMap((line) => {
    if (!line.includes("KPNG-")) return [line];
    const renamed = line
      .replaceAll(
        /KPNG-(SVC|SVL|EXT|FW)-([A-Z2-7]{16})/g,
        (_, kind: string, hash: string) => `KPNG-${kind}-${turn(hash)}`,
      )
      .replace(/--comment "?([^"\s]+( [^"]*)?)"?( |$)/, '--comment "$1 of an older version"$3');
    return withEndpointChain(renamed);
  });
  const made = new Set(lines.flatMap((line) => /^-A (KPNG-SEP-\S+)/.exec(line)?.[1] ?? []));
  return lines
    .flatMap((line) =>
      line === "*nat" ? [line, ":KPNG-UNKNOWN - [0:0]", ...[...made].map((name) => `:${name} - [0:0]`)] : [line],
    )
    .join("\n");
}

/** kube-proxy's layout: the rule that picks an endpoint leads to a chain that translates the address. */
function withEndpointChain(line: string): readonly string[] {
  const [, rule = "", protocol = "", destination = ""] =
    /^(-A KPNG-SV.* -p (\S+) .*)-j DNAT --to-destination (\S+)$/.exec(line) ?? [];
  if (rule === "") return [line];
  const hash = [...`${rule}${destination}`].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) >>> 0, 7);
  const chain = `KPNG-SEP-${hash.toString(16).toUpperCase()}`;
  return [`${rule}-j ${chain}`, `-A ${chain} -p ${protocol} -j DNAT --to-destination ${destination}`];
}

function turn(hash: string): string {
  return [...hash].reverse().join("");
}
