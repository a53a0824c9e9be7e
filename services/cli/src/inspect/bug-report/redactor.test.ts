import { expect, test } from "vitest";
import { Redactor } from "./redactor.ts";

const redactor = new Redactor();
for (const name of ["web", "shop", "web-7d9f"]) redactor.add("name", name);

test.each([
  ["shop/web:http → web-7d9f", "name-2/name-1:http → name-3"],
  ["the Service web.shop.svc does not answer.", "the Service name-1.name-2.svc does not answer."],
  [String.raw`{"reason":"failed:\nshop/web\\nshop"}`, String.raw`{"reason":"failed:\nname-2/name-1\\nname-2"}`],
  ["webhook is another name", "webhook is another name"],
  ["pods web-7d9f-x and web-8-y are gone", "pods name-3-x and name-1-8-y are gone"],
  ["chain endpoint-AB-shop/web/tcp/p__192.0.2.7/80", "chain endpoint-AB-name-2/name-1/tcp/p__10.0.0.1/80"],
  ["cafe:80, shop.", "cafe:80, name-2."],
  ["192.0.2.7:80, again 192.0.2.7.", "10.0.0.1:80, again 10.0.0.1."],
  ["192.0.2.8/24", "10.0.0.2/24"],
  ["192.0.2.7-192.0.2.8", "10.0.0.1-10.0.0.2"],
  ["node ip-192-0-2-7", "node ip-10-0-0-1"],
  ["[2001:db8::1]:443", "[fd00::3]:443"],
  ["peer:2001:db8::1, 2001:db8::1.", "peer:fd00::3, fd00::3."],
  ["route 2001:db8:1::/48", "route fd00::4/48"],
  ["::ffff:192.0.2.9", "fd00::5"],
  ["GET https://api.example.com:6443/x, http://web.shop.svc/", "GET https://host-1:6443/x, http://name-1.name-2.svc/"],
  ["127.0.0.1 at 12:30:01, version 0.1.0, revision 1234", "127.0.0.1 at 12:30:01, version 0.1.0, revision 1234"],
  ['kpng_sync_seconds_bucket{le="0.005"} 3', 'kpng_sync_seconds_bucket{le="0.005"} 3'],
])("%s becomes %s", (text, expected) => {
  expect(redactor.text(text)).toBe(expected);
});

test("names of fields stay", () => {
  expect(redactor.value({ web: ["web", 1, null] })).toEqual({ web: ["name-1", 1, null] });
});

test("labels lose their values, and their keys except Kubernetes' own; short numbers stay", () => {
  const labels = { "example.com/team": "payments", "kubernetes.io/os": "linux", app: "web", tier: "1" };
  expect(redactor.value({ labels, annotations: { "example.com/team": "a b c" } })).toEqual({
    labels: { "key-1": "label-1", "kubernetes.io/os": "label-2", app: "name-1", "key-2": "1" },
    annotations: { "key-1": "label-3" },
  });
  expect(redactor.text("count 1 of payments")).toBe("count 1 of label-1");
});
