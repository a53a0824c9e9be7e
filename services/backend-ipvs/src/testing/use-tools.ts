import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";

/**
 * Puts shell scripts before the tools of the machine, until the test ends. Each finds its standard input in the file
 * `$INPUT`; `readInputs` returns the lines that all of them have been given.
 */
export function useTools(scripts: Readonly<Record<string, string>>): { readonly readInputs: () => readonly string[] } {
  // Tests must not reach the machine's rules.
  const variants = ["iptables", "ip6tables"].flatMap((name) => [`${name}-nft-save`, `${name}-legacy-save`]);
  const all = { ...Object.fromEntries(variants.map((name) => [name, "exit 0"])), ...scripts };
  const begin = 'INPUT=$0.input; cat > "$INPUT"; cat "$INPUT" >> "$(dirname "$0")/inputs"';
  const folder = useScripts(
    Object.fromEntries(Object.entries(all).map(([name, script]) => [name, `${begin}\n${script}`])),
  );
  const inputs = join(folder, "inputs");
  const read = (): string => (existsSync(inputs) ? readFileSync(inputs, "utf8") : "");
  return {
    readInputs: () =>
      read()
        .split("\n")
        .filter((line) => line !== ""),
  };
}

/**
 * Puts tools before those of the machine that keep what they are given, in the form in which the real ones print it,
 * and refuse lines that contain `refused` as the kernel does. They add, and delete only elements of ipsets.
 */
export function useKernel(refused: string): ReturnType<typeof useTools> {
  const kept = `grep -v -F -e '${refused}' "$INPUT" >> "$0.state"`;
  const isRefused = `grep -q -F -e '${refused}' "$INPUT"`;
  const saved = 'touch "$0.state"; cat "$0.state"';
  const address = "s/^address add ([^ ]*) dev ([^ ]*) .*/4: \\2    inet6 \\1 scope host/p";
  return useTools({
    ip: `case "$*" in *-batch*) ${kept}; ${isRefused} && echo "Error: ipv6: Invalid address." >&2 && exit 1 ;;
*link*) echo "4: kube-ipvs0: <NOARP,UP>" ;; *) ${saved} | sed -nE '${address}' ;; esac; exit 0`,
    ipset: `case "$1" in save) ${saved} ;; *) ${kept}; sed -n 's/^del/add/p' "$INPUT" > "$0.gone"
grep -v -x -F -f "$0.gone" "$0.state" > "$0.left"; mv "$0.left" "$0.state" ;; esac; exit 0`,
    ipvsadm: `case "$1" in -S) ${saved} ;; *) ${kept}; ${isRefused} && echo "Invalid operation" >&2 ;; esac; exit 0`,
    ...rulesKept("iptables"),
    ...rulesKept("ip6tables"),
  });
}

/** Returns tools that print the rules of the last installation as iptables-save does: `-I` becomes `-A`. */
function rulesKept(name: "iptables" | "ip6tables"): Readonly<Record<string, string>> {
  const path = `"$(dirname "$0")/${name}.rules"`;
  return {
    [`${name}-save`]: `touch ${path}; cat ${path}`,
    [`${name}-restore`]: `sed -E 's/^-I ([^ ]+)( [0-9]+)? /-A \\1 /' "$INPUT" > ${path}`,
  };
}
