import { expect, test } from "vitest";
import { readProxySettings } from "./proxy-settings.ts";

test.each([
  { options: { detectLocalMode: "BridgeInterface", podBridgeInterface: "" }, reason: "needs --pod-bridge-interface" },
  { options: { clusterCidr: ["10.0.0.0"] }, reason: "is not a CIDR" },
])("the options $options are rejected", ({ options, reason }) => {
  expect(() => readProxySettings(options, true)).toThrow(reason);
});
