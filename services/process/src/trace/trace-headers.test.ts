import { expect, test } from "vitest";
import { checkTraceHeaders } from "./trace-headers.ts";

test.each(["", "authorization=Bearer secret", "a=b=c, api-key = secret ;p=1,"])("headers %j are valid", (headers) => {
  expect(checkTraceHeaders({ OTEL_EXPORTER_OTLP_HEADERS: headers })).toEqual([]);
});

test.each([
  ["secret", "entry 1 of 1 is not name=value; it is not sent"],
  ["a=b,authorization: secret", "entry 2 of 2 is not name=value; it is not sent"],
  ["=secret", "entry 1 of 1 is not name=value; it is not sent"],
  ["secret=", "entry 1 of 1 is not name=value; it is not sent"],
  ["a=secret%2", "entry 1 of 1 has a % without two hex digits; it is not sent"],
])("headers %j cause a warning that does not contain them", (headers, warning) => {
  expect(checkTraceHeaders({ OTEL_EXPORTER_OTLP_TRACES_HEADERS: headers })).toEqual([
    `OTEL_EXPORTER_OTLP_TRACES_HEADERS: ${warning}`,
  ]);
});

test.each([
  ["Bearer secret=x", "has a name with characters that a header cannot have"],
  ["a=secrét", "has a value with characters that a header cannot have"],
  ["a-bin=secret", "is a binary header"],
])("headers %j, which the exporter rejects, fail with an error that does not contain them", (headers, problem) => {
  expect(() => checkTraceHeaders({ OTEL_EXPORTER_OTLP_HEADERS: headers })).toThrow(
    new RegExp(`^\\[BAD_OPTION\\] OTEL_EXPORTER_OTLP_HEADERS: entry 1 of 1 ${problem}$`),
  );
});
