import { afterEach, expect, test, vi } from "vitest";
import { makeVersion } from "./version.ts";

afterEach(() => vi.unstubAllEnvs());

test.each([
  ["json", "json"],
  ["wide", "text"],
  ["yaml", "text"],
])("with KPNG_OUTPUT_FORMAT=%s, kpng version prints %s", async (variable, format) => {
  vi.stubEnv("KPNG_OUTPUT_FORMAT", variable);
  const command = makeVersion(new AbortController().signal).exitOverride();
  await command.action(() => undefined).parseAsync([], { from: "user" });
  expect(command.opts().output).toBe(format);
});

test("an unknown format in KPNG_OUTPUT_FORMAT is an error", async () => {
  vi.stubEnv("KPNG_OUTPUT_FORMAT", "xml");
  const command = makeVersion(new AbortController().signal)
    .exitOverride()
    .configureOutput({ writeErr: () => undefined });
  await expect(command.action(() => undefined).parseAsync([], { from: "user" })).rejects.toThrow("text or json");
});
