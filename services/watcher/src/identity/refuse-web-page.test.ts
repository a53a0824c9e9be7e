import { expect, test } from "vitest";
import { webPageReason } from "./refuse-web-page.ts";

test.each([
  { host: "127.0.0.1:12090", origin: undefined },
  { host: "localhost:12090", origin: undefined },
  { host: "[::1]:12090", origin: undefined },
  { host: "127.0.0.1:12090", origin: "http://127.0.0.1:12090" },
  // HTTP/1.0 has no host, and no browser sends it.
  { host: undefined, origin: undefined },
])("a call to $host from $origin is a local client's", ({ host, origin }) => {
  expect(webPageReason(host, origin)).toBeUndefined();
});

test.each([
  { host: "evil.example:12090", origin: undefined },
  { host: "localhost.evil.example", origin: undefined },
  { host: "127.0.0.1.evil.example", origin: undefined },
  { host: "127.0.0.1:12090", origin: "https://evil.example" },
  { host: "127.0.0.1:12090", origin: "null" },
])("a call to $host from $origin is a web page's", ({ host, origin }) => {
  expect(webPageReason(host, origin)).toContain(origin ?? host);
});

test.each([
  { host: "watcher:12090", isLocal: true },
  { host: "watcher.kube-system.svc:12090", isLocal: true },
  { host: "watcher.kube-system.svc.cluster.local:12090", isLocal: true },
  { host: "10.0.0.7:12090", isLocal: true },
  { host: "evil.example:12090", isLocal: false },
  { host: "watcher.svc.evil.example:12090", isLocal: false },
])("a call from the network to $host is a page's unless only a cluster has the name", ({ host, isLocal }) => {
  expect(webPageReason(host, undefined, { isCluster: true }) === undefined).toBe(isLocal);
});
