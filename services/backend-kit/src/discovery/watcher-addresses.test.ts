import { makeRandom } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { parseApis, resolveApis, type WatcherAddress, WatcherRotation } from "./watcher-addresses.ts";

const address = (key: string): WatcherAddress => ({ key, address: { kind: "unix", path: key } });
const abc = ["a", "b", "c"].map(address);

test("no address is tried twice in a row, and each is tried once in a round", () => {
  for (let seed = 0; seed < 200; seed++) {
    const rotation = new WatcherRotation(makeRandom(seed));
    const keys = Array.from({ length: 30 }, () => rotation.next(abc)?.key);
    for (let index = 1; index < keys.length; index++) expect(keys[index], keys.join("")).not.toBe(keys[index - 1]);
    for (let index = 0; index < 30; index += 3) expect(new Set(keys.slice(index, index + 3)).size).toBe(3);
  }
});

test("nodes start with different addresses", () => {
  const firsts = Array.from({ length: 50 }, (_, seed) => new WatcherRotation(makeRandom(seed * 7_919)).next(abc)?.key);
  expect(new Set(firsts).size).toBe(3);
});

test("the list of addresses may change, down to one and none", () => {
  const rotation = new WatcherRotation();
  rotation.next(abc);
  expect(rotation.next([address("d")])?.key).toBe("d");
  expect(rotation.next([address("d")])?.key).toBe("d");
  expect(rotation.next([address("d"), address("e")])?.key).toBe("e");
  expect(rotation.next([])).toBeUndefined();
});

const dns = async (host: string): Promise<readonly string[]> => {
  if (host === "watcher") return ["10.0.0.1", "fd00::1"];
  throw new Error(`no ${host}`);
};

test("each address of a name is tried once, and its certificate must have the name", async () => {
  const apis = parseApis("10.0.0.2:1,https://watcher:1,unix:///run/x,10.0.0.1:1", false);
  const { addresses } = await resolveApis(apis, new Map(), dns);
  expect(addresses.map(({ key, serverName }) => `${key} ${serverName}`)).toEqual([
    "10.0.0.2:1 undefined",
    "10.0.0.1:1 watcher",
    "[fd00::1]:1 watcher",
    "unix:/run/x undefined",
  ]);
});

test("a name that cannot be resolved has its previous addresses", async () => {
  const apis = parseApis("watcher:1,lost:1,never:1", false);
  const resolved = await resolveApis(apis, new Map([["lost", ["10.0.0.9"]]]), dns);
  expect(resolved.addresses.map(({ key }) => key)).toEqual(["10.0.0.1:1", "[fd00::1]:1", "10.0.0.9:1"]);
  expect(resolved.failures).toEqual(["no lost", "no never"]);
});

test("an invalid address is refused", () => {
  expect(() => parseApis("10.0.0.1:1,a b", false)).toThrow("[BAD_OPTION]");
  for (const nothing of ["", ","])
    expect(() => parseApis(nothing, false)).toThrow(`--api "${nothing}" is not an address`);
  expect(() => parseApis("http://user:sec,ret@host", false)).toThrow('--api "http://***@host" is not an address');
});
