import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { describePackets } from "../kernel/describe-packets.ts";
import { readBlocks } from "./blocks.ts";
import { Machine } from "./machine.ts";

// Types the commands of the README in its order, as a newcomer does, with nothing prepared but a clone: the first one
// sends packets, the next two show the page.

vi.setConfig({ testTimeout: 600_000, hookTimeout: 120_000 });

const commands = readBlocks()
  .filter(({ path }) => path === "README.md")
  .flatMap((block) => block.commands);
const [first = "", ...next] = commands;

/** npm's own error if it finds neither a registry nor the packages in its cache. */
const offline = /ENOTCACHED|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ETIMEDOUT/;

describePackets("a newcomer with nothing but a clone and the README", () => {
  const folder = mkdtempSync(join(tmpdir(), "kpng-newcomer-"));
  const clone = join(folder, "kpng");
  beforeAll(() => {
    execFileSync("git", ["clone", "--quiet", "--no-hardlinks", process.cwd(), clone]);
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  // Without what `npm run` and vitest set for this process.
  const env = {
    PATH: (process.env.PATH ?? "").replaceAll(`${process.cwd()}/node_modules/.bin:`, ""),
    HOME: process.env.HOME ?? "",
    npm_config_prefer_offline: "true",
  };

  test("sends packets with the first command, and sees the page with the next two", async (context) => {
    expect(first).toBe("npm run demo");
    const demo = spawnSync("bash", ["-c", first], { cwd: clone, env, encoding: "utf8", timeout: 500_000 });
    const printed = demo.stdout + demo.stderr;
    if (offline.test(printed) && process.env.CI !== "true") context.skip("npm has no registry and no cached packages");
    expect(demo.status, printed).toBe(0);
    expect(printed).toMatch(/packets +from the client; both addresses answered[\s\S]*Done in/);

    const [install = "", serve = ""] = next;
    expect([install, serve]).toEqual(["npm ci", expect.stringMatching(/^npx kpng file .* to-api$/)]);
    execFileSync("bash", ["-c", install], { cwd: clone, env, stdio: "pipe" });
    await using machine = await Machine.open(clone);
    await machine.serve(serve, '"msg":"input read"');
    const { exitCode, output } = await machine.run("curl -s http://127.0.0.1:12090/ http://127.0.0.1:12090/page.js");
    expect(exitCode, output).toBe(0);
    expect(output).toContain("<title>kpng watcher</title>");
    expect(output.length).toBeGreaterThan(20_000);
  });
});
