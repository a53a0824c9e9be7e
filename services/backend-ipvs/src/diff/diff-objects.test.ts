import { expect, test } from "vitest";
import { finishing, type ObjectKind, objectNames, setRoles } from "../render/kernel-objects.ts";
import { allIds, diffObjects, formatBatches, makeBatches } from "./diff-objects.ts";
import { Draining } from "./draining.ts";
import { ForeignServers, ServiceObjects } from "./service-objects.ts";

const kinds: readonly ObjectKind[] = ["server", "real", "address", ...setRoles];
const server = "-t 10.96.0.1:80";
const real = (host: number): string => `${server} -r 10.1.1.${host}:8080`;

/** Objects of a Service at 10.96.0.1 with these endpoints. */
function objects(...hosts: readonly number[]) {
  return new Map<ObjectKind, Map<string, string>>([
    ["server", new Map([[server, "-s rr"]])],
    ["real", new Map(hosts.map((host) => [real(host), "-w 1"]))],
    ["address", new Map([["10.96.0.1", ""]])],
    ["ADDRESSES", new Map([["10.96.0.1", ""]])],
    ["SERVERS", new Map([["10.96.0.1,tcp:80", ""]])],
  ]);
}

/** Returns the batches between what is installed and what one Service needs. */
function batches(
  installed: ReadonlyMap<ObjectKind, Map<string, string>>,
  after: ReadonlyMap<ObjectKind, Map<string, string>> | undefined,
  draining = new Draining(),
  nowMs = 0,
): string {
  const desired = new ServiceObjects();
  desired.put("ns/web", after);
  const changes = diffObjects(allIds(kinds, desired, installed), desired, installed, draining, nowMs);
  return formatBatches(makeBatches(changes, installed, objectNames(""), "v4"));
}

test("a new Service gets its address last", () => {
  expect(batches(new Map(), objects(1))).toBe(`# ipset -exist restore
add KPNGIPVS-ADDRESSES 10.96.0.1
add KPNGIPVS-SERVERS 10.96.0.1,tcp:80
# ipvsadm -R
-A ${server} -s rr
-a ${real(1)} -m -w 1
# ip -force -batch -
address add 10.96.0.1/32 dev kube-ipvs0 scope host
`);
});

/** Adds a frontend that has only an element: its virtual server is not what the test is about. */
function withElement(kind: ObjectKind, element: string, base = objects(1)): Map<ObjectKind, Map<string, string>> {
  return base.set(kind, new Map([...(base.get(kind) ?? []), [element, ""]]));
}

test("a port of an address that stays is refused from before SERVERS has it until its virtual server exists", () => {
  const after = withElement("SERVERS", "10.96.0.1,tcp:81");
  after.get("server")?.set("-t 10.96.0.1:81", "-s rr");
  expect(batches(objects(1), after)).toBe(`# ipset -exist restore
add KPNGIPVS-REFUSED 10.96.0.1,tcp:81
add KPNGIPVS-SERVERS 10.96.0.1,tcp:81
# ipvsadm -R
-A -t 10.96.0.1:81 -s rr
# ipset -exist restore
del KPNGIPVS-REFUSED 10.96.0.1,tcp:81
`);
  expect(batches(after, objects(1))).toBe(`# ipset -exist restore
add KPNGIPVS-REFUSED 10.96.0.1,tcp:81
# ipvsadm -R
-D -t 10.96.0.1:81
# ipset -exist restore
del KPNGIPVS-SERVERS 10.96.0.1,tcp:81
del KPNGIPVS-REFUSED 10.96.0.1,tcp:81
`);
});

test.each([
  ["a mark that a frontend begins with", withElement("NODE-MARKS", "10.96.0.1,tcp:81"), true],
  ["a mark beside a virtual server", withElement("NODE-MARKS", "10.96.0.1,tcp:80"), false],
  ["a node port", withElement("SERVERS", "192.0.2.1,tcp:30080"), false],
  ["a frontend that is refused anyway", withElement("REFUSED", "10.96.0.1,tcp:81"), false],
])("of frontends at an address that stays, only one that begins is refused meanwhile: %s", (_, after, isGuarded) => {
  expect(batches(objects(1), after).includes("del KPNGIPVS-REFUSED")).toBe(isGuarded);
});

test("a frontend that was refused is so until its virtual server exists, without another run of ipset", () => {
  const refused = withElement("REFUSED", "10.96.0.1,tcp:81");
  expect(batches(refused, withElement("SERVERS", "10.96.0.1,tcp:81"))).toBe(`# ipset -exist restore
add KPNGIPVS-SERVERS 10.96.0.1,tcp:81
# ipset -exist restore
del KPNGIPVS-REFUSED 10.96.0.1,tcp:81
`);
});

test("a refused frontend stays so until the last batch if its virtual server goes", () => {
  const installed = withElement("SERVERS", "10.96.0.1,tcp:81", withElement("REFUSED", "10.96.0.1,tcp:81"));
  installed.get("server")?.set("-t 10.96.0.1:81", "-s rr");
  expect(batches(installed, objects(1))).toMatch(/^# ipvsadm -R\n-D -t 10.96.0.1:81\n/);
});

test("UDP endpoints are deleted at once", () => {
  const udp = new Map<ObjectKind, Map<string, string>>([
    ["server", new Map([["-u 10.96.0.1:53", "-s rr"]])],
    ["real", new Map([["-u 10.96.0.1:53 -r 10.1.1.1:53", "-w 1"]])],
  ]);
  const after = new Map<ObjectKind, Map<string, string>>([["server", new Map([["-u 10.96.0.1:53", "-s rr"]])]]);
  expect(batches(udp, after)).toBe("# ipvsadm -R\n-d -u 10.96.0.1:53 -r 10.1.1.1:53\n");
});

test("an object that two Services need stays until both are gone", () => {
  const desired = new ServiceObjects();
  const address = new Map<ObjectKind, Map<string, string>>([["address", new Map([["198.51.100.1", ""]])]]);
  desired.put("ns/a", address);
  desired.put("ns/b", address);
  desired.put("ns/a", undefined);
  expect(desired.valueOf("address", "198.51.100.1")).toBe("");
  desired.put("ns/b", undefined);
  expect(desired.valueOf("address", "198.51.100.1")).toBeUndefined();
});

test("an object that moves from one Service to another has the value of its new owner, in either order", () => {
  const of = (value: string) => new Map<ObjectKind, Map<string, string>>([["server", new Map([[server, value]])]]);
  for (const order of [["ns/a", "ns/b"] as const, ["ns/b", "ns/a"] as const]) {
    const desired = new ServiceObjects();
    desired.put("ns/a", of("-s rr"));
    for (const key of order) desired.put(key, key === "ns/b" ? of("-s rr -p 5") : undefined);
    expect(desired.valueOf("server", server)).toBe("-s rr -p 5");
  }
});

test("looks at connections become rarer with the age of the youngest removal", () => {
  const draining = new Draining();
  expect(draining.nextLookMs(0)).toBeUndefined();
  draining.keeps(real(1), 0);
  expect([0, 10_000, 1_000_000].map((nowMs) => (draining.nextLookMs(nowMs) ?? 0) - nowMs)).toEqual([
    1_000, 5_000, 15_000,
  ]);
});

test("the next look at the connections is known for as many endpoints as can drain", () => {
  const draining = new Draining();
  for (let at = 0; at < 200_000; at++) draining.keeps(`${server} -r 10.1.1.1:${at}`, at);
  expect(draining.nextLookMs(200_000)).toBe(201_000);
});

test("the record of a firewall mark stays while its virtual server drains", () => {
  const marked = (value: string | undefined) =>
    new Map<ObjectKind, Map<string, string>>([
      ["server", new Map([["-f 1795162113", "-s rr"]])],
      ["real", new Map(value === undefined ? [] : [["-f 1795162113 -r 10.1.1.1:8080", value]])],
      ["MARKS", new Map([["107.0.0.1", ""]])],
    ]);
  const draining = new Draining();
  expect(batches(marked("-w 1"), undefined, draining)).toBe(
    "# ipvsadm -R\n-e -f 1795162113 -r 10.1.1.1:8080 -m -w 0\n",
  );
  const reals = marked("-w 0").get("real")?.keys() ?? [];
  draining.finish(new Map([...reals].map((key) => [key, 0])));
  expect(batches(marked("-w 0"), undefined, draining)).toBe(
    "# ipvsadm -R\n-D -f 1795162113\n# ipset -exist restore\ndel KPNGIPVS-MARKS 107.0.0.1\n",
  );
});

test("an endpoint that only finishes flows loses its weight if it is installed, and is not added", () => {
  const after = objects(1, 2);
  after.get("real")?.set(real(1), finishing);
  expect(batches(objects(2), after)).toBe("");
  expect(batches(objects(1, 2), after)).toBe(`# ipvsadm -R\n-e ${real(1)} -m -w 0\n`);
  expect(batches(after, after)).toBe("");
});

test("virtual servers of other programs stay at the excluded addresses only", () => {
  const foreign = new ForeignServers(["10.96.0.0/24", "fd00::/8"]);
  expect(foreign.noteIfExcluded("-t 10.96.0.11:80")).toBe(true);
  expect(foreign.noteIfExcluded("-u [fd00::11]:80")).toBe(true);
  expect(foreign.noteIfExcluded("-t 10.97.0.11:80")).toBe(false);
  expect(foreign.noteIfExcluded("-f 1795162113")).toBe(false);
  expect(foreign.concerns("server", "-t 10.96.0.11:80")).toBe(true);
  expect(foreign.concerns("real", "-t 10.96.0.11:80 -r 10.1.1.7:8080")).toBe(true);
  expect(foreign.concerns("SERVERS", "10.96.0.11,tcp:80")).toBe(true);
  // No other program has a virtual server there, so the Service is served.
  expect(foreign.concerns("server", "-t 10.96.0.12:80")).toBe(false);
  expect(foreign.concerns("address", "10.96.0.11")).toBe(false);
});
