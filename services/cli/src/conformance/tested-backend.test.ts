import { expect, test, vi } from "vitest";
import { protocolCases, runCase } from "./protocol-cases.ts";
import { TestedBackend } from "./tested-backend.ts";

const options = { api: "127.0.0.1:1", node: "n1", report: "stdout" } as const;

test("only a line with lists of addresses is a state", async () => {
  const lines = [
    '{"msg":"applying","services":2}',
    '{"services":["default/web"]}',
    '{"services":{"default/web":[1]}}',
    '{"services":{"default/web":["10.0.0.2","10.0.0.1"]}}',
  ];
  const backend = await TestedBackend.start(["printf", "%s\\n", ...lines], options);
  await vi.waitFor(() => expect(backend.states).toEqual([{ "default/web": ["10.0.0.1", "10.0.0.2"] }]));
  await backend.kill();
});

test("a command that does not exist ends the run", async () => {
  const [one] = protocolCases;
  if (one === undefined) throw new Error("no case");
  const settings = { command: ["no-such-program"], report: "stdout", limitMs: 1_000 } as const;
  const run = runCase(one, settings, new Promise(() => undefined));
  await expect(run).rejects.toThrow("[BAD_OPTION] the backend cannot be started: spawn no-such-program ENOENT");
});

test("a backend of another user cannot be killed, which is an error", async () => {
  const backend = await TestedBackend.start(["sleep", "60"], options);
  const kill = vi.spyOn(process, "kill").mockImplementationOnce(() => {
    throw Object.assign(new Error("kill EPERM"), { code: "EPERM" });
  });
  await expect(backend.kill()).rejects.toThrow("[BAD_OPTION] the backend cannot be signalled");
  kill.mockRestore();
  await backend.kill();
  expect(backend.ended).toBe("SIGKILL");
});
