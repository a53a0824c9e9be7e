import { expect, test } from "vitest";
import { ForeignServers } from "./foreign-servers.ts";

test("virtual servers of other programs stay at the excluded addresses only", () => {
  const foreign = new ForeignServers(["10.96.0.0/24", "fd00::/8"]);
  expect(foreign.keeps("-t 10.96.0.11:80")).toBe(true);
  expect(foreign.keeps("-u [fd00::11]:80")).toBe(true);
  expect(foreign.keeps("-t 10.97.0.11:80")).toBe(false);
  expect(foreign.keeps("-f 1795162113")).toBe(false);
  expect(foreign.concerns("server", "-t 10.96.0.11:80")).toBe(true);
  expect(foreign.concerns("real", "-t 10.96.0.11:80 -r 10.1.1.7:8080")).toBe(true);
  expect(foreign.concerns("SERVERS", "10.96.0.11,tcp:80")).toBe(true);
  // No other program has a virtual server there, so the Service is served.
  expect(foreign.concerns("server", "-t 10.96.0.12:80")).toBe(false);
  expect(foreign.concerns("address", "10.96.0.11")).toBe(false);
});
