import { spawn } from "node:child_process";
import { expect, test } from "vitest";
import { waitForSocket } from "./laboratory.ts";

test("waiting for the socket of a program that a signal ends fails immediately", async () => {
  const program = spawn("sleep", ["60"]);
  program.kill("SIGKILL");
  await expect(waitForSocket(program, "/nowhere/socket")).rejects.toThrow("SIGKILL before /nowhere/socket existed");
});
