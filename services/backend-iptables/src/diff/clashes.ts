/** An address and port at which two Services would answer: rules are met one after another, so the first one does. */
export interface Clash {
  /** *Shape:* `10.96.0.10:80/TCP`, `[fd00::1]:80/TCP`, `node port 30080/TCP`. */
  readonly frontend: string;
  /** Whose rule stands first. */
  readonly served: string;
  readonly shadowed: string;
}

/** A rule that leads from a frontend to a Service's chains, in the words of `render-frontends.ts`. */
const frontendRule = /^(?:-d ([0-9a-f.:]+)\/\d+ )?-p (\w+) (?:-m comment --comment "[^"]*" )?-m \w+ --dport (\d+) -j /;

/** `parts` are the rules of one list by whom they are of, in the order in which they stand. */
export function listClashes(parts: Iterable<readonly [owner: string, rules: readonly string[]]>): readonly Clash[] {
  const owners = new Map<string, string>();
  const clashes: Clash[] = [];
  for (const [owner, rules] of parts) {
    for (const rule of rules) {
      const [, address, protocol = "", port] = frontendRule.exec(rule) ?? [];
      if (port === undefined) continue;
      const host = address === undefined ? "node port " : address.includes(":") ? `[${address}]:` : `${address}:`;
      const frontend = `${host}${port}/${protocol.toUpperCase()}`;
      const served = owners.get(frontend);
      if (served === undefined) owners.set(frontend, owner);
      else if (served !== owner) clashes.push({ frontend, served, shadowed: owner });
    }
  }
  return clashes;
}
