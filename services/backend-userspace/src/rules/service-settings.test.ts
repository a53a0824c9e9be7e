import { expect, test } from "vitest";
import { serviceSettings } from "./service-settings.ts";

const options = { algorithm: "round-robin", proxyProtocol: "v2" } as const;

test.each([
  { annotations: {}, settings: options },
  {
    annotations: { "kpng.io/balance": "least-connections" },
    settings: { algorithm: "least-connections", proxyProtocol: "v2" },
  },
  { annotations: { "kpng.io/proxy-protocol": "none" }, settings: { algorithm: "round-robin", proxyProtocol: "none" } },
  { annotations: { "kpng.io/proxy-protocol": "v1" }, settings: { algorithm: "round-robin", proxyProtocol: "v1" } },
  { annotations: { "kpng.io/balance": "random", "kpng.io/proxy-protocol": "V1", other: "v1" }, settings: options },
])("the annotations $annotations of a Service give $settings", ({ annotations, settings }) => {
  const service = { annotations };
  expect(serviceSettings({ service } as unknown as Parameters<typeof serviceSettings>[0], options)).toEqual(settings);
});

test("a Service that the view lacks has the settings of the options", () => {
  expect(serviceSettings(undefined, options)).toEqual(options);
});
