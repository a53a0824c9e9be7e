import { readFileSync } from "node:fs";
import { desiredSysctls } from "@kpng/backend-ipvs/commit/kernel-support.ts";
import { conntrackOptions, desiredSettings } from "@kpng/backend-kit/conntrack/conntrack-settings.ts";
import { conntrackLiberal, routeLocalnet } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { expect, test } from "vitest";

test("every kernel setting that kpng changes has a row in docs/reference/kernel-settings.md", () => {
  const text = readFileSync(new URL("../../docs/reference/kernel-settings.md", import.meta.url), "utf8");
  const options = conntrackOptions.map(({ flags }) => {
    const words = flags.split(" ")[0]?.replace(/^--/, "") ?? "";
    const name = words.replace(/-(.)/g, (_all, letter: string) => letter.toUpperCase());
    return [name, name === "conntrackTcpBeLiberal" ? true : 1_000] as const;
  });
  const names = desiredSettings(Object.fromEntries(options), 1).map(({ name }) => name);
  expect(names).toHaveLength(7);
  const ofIpvs = desiredSysctls({ isStrictArp: true });
  for (const [name, value] of ofIpvs) expect(text).toContain(`\`${name}\` = ${value}`);
  for (const name of [...names, routeLocalnet, conntrackLiberal]) expect(text).toContain(`\`${name}\``);
});
