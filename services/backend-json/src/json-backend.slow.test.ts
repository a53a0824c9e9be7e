import { startProgram } from "@kpng/backend-kit/testing/program.ts";
import { expect, test } from "vitest";

const main = new URL("main.ts", import.meta.url);

test.each([
  { name: "an invalid address", args: ["--api", "no address"], code: 1, says: "BAD_OPTION" },
  { name: "a missing TLS file", args: ["--tls-ca", "/no/such/file"], code: 1, says: "TLS_FILES" },
  { name: "an unknown option", args: ["--frobnicate"], code: 2, says: "unknown option" },
])("$name ends the program at the start with exit code $code", async ({ args, code, says }) => {
  const program = startProgram(main, args);
  expect(await program.ended).toBe(code);
  expect(program.stderr()).toContain(says);
});
