import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { expect, test } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { readBlocks } from "./blocks.ts";
import { Machine } from "./machine.ts";

const [first = "", install = "", serve = ""] = readBlocks()
  .filter(({ path }) => path === "README.md")
  .flatMap(({ commands }) => commands);

/** npm's own error if it finds neither a registry nor the packages in its cache. */
const offline = /ENOTCACHED|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ETIMEDOUT/;

describePackets("a newcomer with nothing but a clone and the README", () => {
  test("sends packets with the first command, and sees the status with the next two", {
    timeout: 600_000,
  }, async (context) => {
    const cwd = join(temporaryFolder(), "kpng");
    execFileSync("git", ["clone", "--quiet", "--no-hardlinks", process.cwd(), cwd]);
    // Without what `npm run` and vitest set for this process.
    const env = {
      PATH: (process.env.PATH ?? "").replaceAll(`${process.cwd()}/node_modules/.bin:`, ""),
      HOME: process.env.HOME ?? "",
      npm_config_prefer_offline: "true",
    };
    expect(first).toBe("npm run demo");
    const demo = spawnSync("bash", ["-c", first], { cwd, env, encoding: "utf8", timeout: 500_000 });
    const printed = demo.stdout + demo.stderr;
    if (offline.test(printed) && process.env.CI !== "true") context.skip("npm has no registry and no cached packages");
    expect(demo.status, printed).toBe(0);
    expect(printed).toMatch(/packets +from the client; both addresses answered[\s\S]*Done in/);

    expect([install, serve]).toEqual(["npm ci", expect.stringMatching(/^npx kpng file .* to-api$/)]);
    execFileSync("bash", ["-c", install], { cwd, env, stdio: "pipe" });
    await using machine = await Machine.open(cwd);
    await machine.serve(serve, '"msg":"input read"');
    const { exitCode, output } = await machine.run("npx kpng status");
    expect(exitCode, output).toBe(0);
    expect(output).toContain("2 Services, 4 endpoints");
  });
});
