import { expect, test } from "vitest";
import { checkTraceHeaders } from "./trace-headers.ts";

test.each(["", "authorization=Bearer secret", "a=b=c, api-key = secret ;p=1,"])("%j is as it should be", (headers) => {
  expect(checkTraceHeaders({ OTEL_EXPORTER_OTLP_HEADERS: headers })).toEqual([]);
});

test.each([
  ["secret", "entry 1 of 1 is no name=value, and is not sent"],
  ["a=b,authorization: secret", "entry 2 of 2 is no name=value, and is not sent"],
  ["=secret", "entry 1 of 1 is no name=value, and is not sent"],
  ["secret=", "entry 1 of 1 is no name=value, and is not sent"],
  ["a=secret%2", "entry 1 of 1 has a % without two hex digits, and is not sent"],
])("%j is warned of, without its text", (headers, warning) => {
  expect(checkTraceHeaders({ OTEL_EXPORTER_OTLP_TRACES_HEADERS: headers })).toEqual([
    `OTEL_EXPORTER_OTLP_TRACES_HEADERS: ${warning}`,
  ]);
});

test.each([
  ["Bearer secret=x", "has a name that no header can have"],
  ["a=secrét", "has a value with letters that no header can have"],
  ["a-bin=secret", "is a binary header"],
])("%j, with which the exporter cannot be made, is refused without its text", (headers, problem) => {
  expect(() => checkTraceHeaders({ OTEL_EXPORTER_OTLP_HEADERS: headers })).toThrow(
    new RegExp(`^\\[BAD_OPTION\\] OTEL_EXPORTER_OTLP_HEADERS: entry 1 of 1 ${problem}$`),
  );
});
