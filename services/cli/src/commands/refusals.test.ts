import { expect, test } from "vitest";
import { loadKpng } from "../kpng.ts";

test.each([
  ["delete svc web", 'kpng has no "delete": kpng never writes to the API server\nHint: use kubectl; then kpng trace'],
  ["logs web-1", "Hint: kubectl logs"],
  ["get pods", "Hint: kpng get endpoints"],
  ["get services -f a.yaml", "Hint: kpng file -i FILE get services"],
  ["--proxy-mode=ipvs", "Hint: kpng-nft, kpng-iptables or kpng-ipvs"],
  ["status --kubeconfig x", "Hint: --api ADDRESS"],
])("kpng %s is refused with what to type instead", async (line, hint) => {
  const words = line.split(" ");
  const program = (await loadKpng(words))(AbortSignal.abort());
  let said = "";
  const throwErrors = (command: typeof program): void => {
    command.exitOverride().configureOutput({
      writeErr: (text) => {
        said += text;
      },
    });
    command.commands.forEach(throwErrors);
  };
  throwErrors(program);
  await expect(program.parseAsync(words, { from: "user" })).rejects.toThrow();
  expect(said).toContain(hint);
});
