import { expect, test } from "vitest";
import { Redactor } from "./redactor.ts";

const redactor = new Redactor();
for (const name of ["web", "shop", "web-7d9f"]) redactor.add("name", name);

test.each([
  ["shop/web:http → web-7d9f", "name-2/name-1:http → name-3"],
  ["the Service web.shop.svc does not answer.", "the Service name-1.name-2.svc does not answer."],
  ["webhook and web-7d9f-x are other names", "webhook and web-7d9f-x are other names"],
  ["cafe:80, shop.", "cafe:80, name-2."],
  ["192.0.2.7:80, again 192.0.2.7.", "10.0.0.1:80, again 10.0.0.1."],
  ["192.0.2.8/24", "10.0.0.2/24"],
  ["[2001:db8::1]:443", "[fd00::3]:443"],
  ["127.0.0.1 at 12:30:01, version 0.1.0, revision 1234", "127.0.0.1 at 12:30:01, version 0.1.0, revision 1234"],
  ['kpng_sync_seconds_bucket{le="0.005"} 3', 'kpng_sync_seconds_bucket{le="0.005"} 3'],
])("%s becomes %s", (text, expected) => {
  expect(redactor.text(text)).toBe(expected);
});

test("names of fields stay", () => {
  expect(redactor.value({ web: ["web", 1, null] })).toEqual({ web: ["name-1", 1, null] });
});
