import { expect, test } from "vitest";
import { parseApiAddress } from "./connection/dial.ts";
import { parseHostPort } from "./connection/host-port.ts";
import { withoutCredentials } from "./redact.ts";

test.each([
  ["http://user:secret@host:80/x", "http://***@host:80/x"],
  ["HTTPS://secret@host", "HTTPS://***@host"],
  ["user:secret@host", "***@host"],
  ["http://user:sec/ret@host", "http://***@host"],
  ["http://user:sec@ret@host", "http://***@host"],
  ["http://a:secret@b,http://c:secret@d", "http://***@d"],
  ["http://user:sec\nret@host", "http://***@host"],
  ["http://host:80", "http://host:80"],
  ["host", "host"],
  ["", ""],
])("%j is shown as %j", (address, shown) => {
  expect(withoutCredentials(address)).toBe(shown);
});

test.each([
  () => parseApiAddress("http://user:secret@host", false),
  () => parseApiAddress("user:secret@host:99999", true),
  () => parseHostPort("user:secret@host:1", "--listen"),
])("the error for an invalid address does not contain its password: %s", (parse) => {
  expect(parse).toThrow(/^\[BAD_OPTION\] --(api|listen) "(http:\/\/)?\*\*\*@host/);
});
