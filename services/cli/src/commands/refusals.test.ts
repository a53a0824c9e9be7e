import { expect, test } from "vitest";
import { loadKpng, optionsLast } from "../kpng.ts";

test.each([
  ["--context prod --kubeconfig=x status -o json", "status -o json --context prod --kubeconfig=x"],
  ["--context prod", "--context prod"],
  ["status --context prod", "status --context prod"],
  ["--version", "--version"],
])("options of a cluster before the command are read as after it: %s", (line, expected) => {
  expect(optionsLast(line.split(" ")).join(" ")).toBe(expected);
});

test.each([
  ["delete svc web", 'kpng has no "delete": kpng never writes to the API server\nHint: use kubectl; then kpng trace'],
  ["logs web-1", "Hint: kubectl logs"],
  ["get pods", "Hint: kpng get endpoints"],
  ["get services -f a.yaml", "Hint: kpng file -i FILE get services"],
  ["--proxy-mode=ipvs", "Hint: kpng-nft, kpng-iptables or kpng-ipvs"],
  ["status --server https://10.0.0.10", "Hint: --kubeconfig FILE or --context NAME for a cluster"],
])("kpng %s is refused with what to type instead", async (line, hint) => {
  const words = line.split(" ");
  const program = (await loadKpng(words))(AbortSignal.abort());
  let said = "";
  const throwErrors = (command: typeof program): void => {
    command.exitOverride().configureOutput({
      writeErr: (text) => (said += text),
    });
    command.commands.forEach(throwErrors);
  };
  throwErrors(program);
  await expect(program.parseAsync(words, { from: "user" })).rejects.toThrow();
  expect(said).toContain(hint);
});
