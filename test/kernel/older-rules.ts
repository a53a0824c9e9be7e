/**
 * Converts our saved rules to rules that another version of kpng might have left: a chain per endpoint, other hashes in
 * chain names, other comments, an unknown chain, and other jumps. Both rule sets treat packets equally.
 *
 * *Shape:* a complete input of `iptables-restore`; rules of other programs are unchanged.
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

/** Uses kube-proxy's layout: the rule that selects an endpoint jumps to a chain that translates the address. */
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
