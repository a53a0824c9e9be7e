import { makeRandom } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { PlaceChooser } from "./choose-place.ts";
import { parseApis, resolveApis, type WatcherPlace } from "./resolve-apis.ts";

const place = (key: string): WatcherPlace => ({ key, address: { kind: "unix", path: key } });
const abc = ["a", "b", "c"].map(place);

test("no place comes twice in a row, and each comes once in a round", () => {
  for (let seed = 0; seed < 200; seed++) {
    const chooser = new PlaceChooser(undefined, makeRandom(seed));
    const keys = Array.from({ length: 30 }, () => chooser.next(abc)?.key);
    for (let index = 1; index < keys.length; index++) expect(keys[index], keys.join("")).not.toBe(keys[index - 1]);
    for (let index = 0; index < 30; index += 3) expect(new Set(keys.slice(index, index + 3)).size).toBe(3);
  }
});

test("nodes begin in different places", () => {
  const firsts = Array.from(
    { length: 50 },
    (_, seed) => new PlaceChooser(undefined, makeRandom(seed * 7_919)).next(abc)?.key,
  );
  expect(new Set(firsts).size).toBe(3);
});

test("where it worked before is tried first if it is still there", () => {
  expect(new PlaceChooser("b").next(abc)?.key).toBe("b");
  expect(new PlaceChooser("gone").next(abc)?.key).not.toBe("gone");
});

test("places may come and go, down to one and none", () => {
  const chooser = new PlaceChooser(undefined);
  chooser.next(abc);
  expect(chooser.next([place("d")])?.key).toBe("d");
  expect(chooser.next([place("d")])?.key).toBe("d");
  expect(chooser.next([place("d"), place("e")])?.key).toBe("e");
  expect(chooser.next([])).toBeUndefined();
});

const dns = async (host: string): Promise<readonly string[]> => {
  if (host === "watcher") return ["10.0.0.1", "fd00::1"];
  throw new Error(`no ${host}`);
};

test("addresses and names become places, each once; the certificate's name is the one that was given", async () => {
  const apis = parseApis("10.0.0.2:1,https://watcher:1,unix:///run/x,10.0.0.1:1", false);
  const { places } = await resolveApis(apis, new Map(), dns);
  expect(places.map(({ key, serverName }) => `${key} ${serverName}`)).toEqual([
    "10.0.0.2:1 undefined",
    "10.0.0.1:1 watcher",
    "[fd00::1]:1 watcher",
    "unix:/run/x undefined",
  ]);
});

test("a name that cannot be resolved is what it was before", async () => {
  const apis = parseApis("watcher:1,lost:1,never:1", false);
  const resolved = await resolveApis(apis, new Map([["lost", ["10.0.0.9"]]]), dns);
  expect(resolved.places.map(({ key }) => key)).toEqual(["10.0.0.1:1", "[fd00::1]:1", "10.0.0.9:1"]);
  expect(resolved.failures).toEqual(["no lost", "no never"]);
});

test("an address that is none is refused", () => {
  expect(() => parseApis("10.0.0.1:1,a b", false)).toThrow("[BAD_OPTION]");
  for (const nothing of ["", ","])
    expect(() => parseApis(nothing, false)).toThrow(`--api "${nothing}" is not an address`);
  expect(() => parseApis("http://user:sec,ret@host", false)).toThrow('--api "http://***@host" is not an address');
});
