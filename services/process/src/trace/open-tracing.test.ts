import { afterEach, expect, test, vi } from "vitest";
import { createLog } from "../log.ts";
import { openTracing } from "./open-tracing.ts";

const log = createLog("off", () => undefined);
const parent = `00-${"1".repeat(32)}-${"2".repeat(16)}-01`;

afterEach(() => void vi.unstubAllEnvs());

function setEnvironment(variables: string): void {
  vi.stubEnv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
  for (const variable of variables.split(" ")) {
    const [name = "", value = ""] = variable.split("=");
    vi.stubEnv(name, value);
  }
}

test.each(["OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_SDK_DISABLED=TRUE", "OTEL_TRACES_EXPORTER=none"])(
  "nothing is exported with %s",
  async (variables) => {
    setEnvironment(variables);
    expect(await openTracing({ name: "a", version: "1" }, log)).toBeUndefined();
  },
);

/** `sampled`: whether a new trace, and one that another process began, are recorded. */
test.each([
  { variables: "OTEL_TRACES_EXPORTER=otlp", sampled: [true, true] },
  { variables: "OTEL_TRACES_SAMPLER=always_off", sampled: [false, false] },
  { variables: "OTEL_TRACES_SAMPLER=parentbased_always_off", sampled: [false, true] },
  { variables: "OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0", sampled: [false, true] },
  { variables: "OTEL_TRACES_SAMPLER=traceidratio", sampled: [true, true] },
])("traces are sampled as $variables says", async ({ variables, sampled }) => {
  setEnvironment(variables);
  const tracing = await openTracing({ name: "a", version: "1" }, log);
  const isSampled = (start: object): boolean => tracing?.begin("a", { startMs: 1, ...start }) !== undefined;
  expect([isSampled({}), isSampled({ parent })]).toEqual(sampled);
});

test.each([
  "OTEL_TRACES_EXPORTER=zipkin",
  "OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
  "OTEL_TRACES_SAMPLER=sometimes",
  "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=1.1",
])("%s is refused", async (variables) => {
  setEnvironment(variables);
  await expect(openTracing({ name: "a", version: "1" }, log)).rejects.toThrow("[BAD_OPTION] OTEL_");
});
