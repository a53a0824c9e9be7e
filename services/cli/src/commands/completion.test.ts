import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import { expect, test } from "vitest";
import { loadKpng } from "../kpng.ts";
import { complete } from "./completion.ts";

const program = (await loadKpng())(new AbortController().signal);

test.each([
  ["", ["kube", "file", "api", "replay", "local", "get", "describe", "explain", "completion"]],
  ["ge", ["get"]],
  ["get ", ["services", "nodes", "rules"]],
  ["file -i get get se", ["services"]],
  ["file --input x to-local to-j", ["to-json"]],
  ["get svc --name", ["--namespace"]],
  ["get services -o ", []],
])("after %j", (line, expected) => {
  const found = complete(line.split(" "), program);
  expect(found).toEqual(expect.arrayContaining(expected));
  if (expected.length <= 1) expect(found).toEqual(expected);
  expect(found).not.toContain("__complete");
});

test("the bash script completes with the words of the command line", () => {
  const command = `
    kpng() { if [ "$1" = completion ]; then ${kpng} completion bash; else ${kpng} "$@"; fi; }
    eval "$(kpng completion bash)"
    COMP_WORDS=(kpng get serv); COMP_CWORD=2; _kpng; echo "\${COMPREPLY[@]}"`;
  expect(execFileSync("bash", ["-c", command], { encoding: "utf8" })).toBe("services\n");
});

// A shell types the word in a terminal of its own, and what it then shows must contain the completed line.
const zsh = `
  zmodload zsh/zpty
  zpty shell zsh -f -i
  show() {
    local shown= part=
    until [[ $shown == *$1* ]]; do
      if zpty -rt shell part; then shown+=$part; else sleep 0.1; fi
    done
  }
  zpty -w shell "PS1=; autoload -Uz compinit; fpath=(\\$PWD \\$fpath); compinit -u -D; $1; print rea''dy"
  show ready
  zpty -w -n shell $'kpng get serv\\t'
  show 'kpng get services'
  zpty -w -n shell $'\\x15kpng get services --name\\t'
  show 'kpng get services --namespace'`;

test.skipIf(!hasShell("zsh")).each([
  ["sourced", "source <(kpng completion zsh)"],
  ["in a folder of fpath", ":"],
])("zsh completes with the script, %s", { timeout: 60_000 }, (_way, prepare) => {
  const { folder, env: inherited } = makeCommand();
  // On a dumb terminal, zsh draws lines otherwise.
  const env = { ...inherited, TERM: "xterm" };
  execFileSync("sh", ["-c", "kpng completion zsh > _kpng"], { cwd: folder, env });
  const options = { cwd: folder, env, encoding: "utf8", timeout: 50_000 } as const;
  const { status, stdout, stderr } = spawnSync("zsh", ["-fc", zsh, "zsh", prepare], options);
  expect(status, stdout + stderr).toBe(0);
});

test.skipIf(!hasShell("fish"))("fish completes with the script, and files where a value may be one", () => {
  const { folder, env } = makeCommand();
  writeFileSync(join(folder, "services.yaml"), "");
  const words = (line: string): readonly string[] =>
    execFileSync("fish", ["--no-config", "-c", `kpng completion fish | source; complete -C "${line}"`], {
      cwd: folder,
      env,
      encoding: "utf8",
    }).split("\n");
  expect(words("kpng get serv")).toEqual(["services", ""]);
  expect(words("kpng get ")).toContain("nodes");
  expect(words("kpng get services --name")).toEqual(["--namespace", ""]);
  expect(words("kpng file -i serv")).toEqual(["services.yaml", ""]);
});

const kpng = `"${process.execPath}" "${resolve("services/cli/src/main.ts")}"`;

function hasShell(name: string): boolean {
  return spawnSync(name, ["--version"]).status === 0;
}

/** Makes a folder with a program `kpng`, and an environment that has the folder on its PATH. */
function makeCommand(): { readonly folder: string; readonly env: NodeJS.ProcessEnv } {
  const folder = useScripts({ kpng: `exec ${kpng} "$@"` });
  return { folder, env: { ...process.env, HOME: folder } };
}
