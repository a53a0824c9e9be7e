import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import type { BackendCommand, BackendContext } from "./backend-command.ts";
import { prepareBackend } from "./prepare-backend.ts";

const options = {
  api: "unix:///run/kpng/watcher.sock",
  healthzBindAddress: "127.0.0.1:10272",
  metricsBindAddress: "127.0.0.1:10273",
  inspectSocket: "/run/kpng/inspect.sock",
};

/** Returns the number of servers beside a backend, and the inspection socket that it was given. */
function prepared(isQuestion: boolean): { readonly servers: number; readonly inspectSocket: string | undefined } {
  let given: BackendContext | undefined;
  const backend: BackendCommand = {
    ...{ name: "test", description: "", options: [], examples: "" },
    isQuestion: () => isQuestion,
    makeTask: (_options, context) => {
      given = context;
      return { name: "test", run: () => Promise.resolve() };
    },
  };
  const parts = { log: createLog(), health: new Health(), metrics: new Registry() };
  const { beside } = prepareBackend(backend, options, parts);
  return { servers: beside.length, inspectSocket: given?.inspectSocket };
}

test("a question with the options of a running backend takes neither its addresses nor its socket", () => {
  expect(prepared(true)).toEqual({ servers: 0, inspectSocket: undefined });
});

test("a backend serves health and metrics, and inspection", () => {
  expect(prepared(false)).toEqual({ servers: 2, inspectSocket: "/run/kpng/inspect.sock" });
});
