import { createLog } from "@kpng/process/log.ts";
import { makePick, makeRandom } from "@kpng/process/random.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { everyRight, noRights, type Rights } from "../identity/rights.ts";
import { Admission, type CallClass, type CallSlot, classOf, nodeOf } from "./admission.ts";
import { type ClientLimits, Refusals, resolveLimits } from "./limits.ts";

const nodeRights: Rights = { ...noRights, nodes: new Set(["n1"]), identity: "n1" };

test.each<{ readonly url: string; readonly rights: Rights; readonly expected: CallClass }>([
  { url: "/localv1.Sets/Watch", rights: nodeRights, expected: "nodes" },
  { url: "/globalv1.Sets/Watch", rights: everyRight("relay"), expected: "nodes" },
  { url: "/kpng.position.v1.PositionService/Check", rights: nodeRights, expected: "nodes" },
  { url: "/localv1.Sets/Watch", rights: noRights, expected: "open" },
  { url: "/kpng.position.v1.PositionService/Check", rights: noRights, expected: "open" },
  { url: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", rights: noRights, expected: "open" },
  { url: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", rights: nodeRights, expected: "people" },
  { url: "/kpng.inspect.v1.InspectService/ListNodes", rights: nodeRights, expected: "people" },
  { url: "/", rights: noRights, expected: "open" },
  { url: "/?filter=x", rights: everyRight("person"), expected: "people" },
  { url: "/grpc.health.v1.Health/Watch", rights: everyRight("person"), expected: "open" },
  { url: "/grpc.health.v1.Health/Check?x", rights: noRights, expected: "probes" },
])("a call to $url is of class $expected", ({ url, rights, expected }) => {
  expect(classOf(url, rights)).toBe(expected);
});

function makeAdmission(limits: ClientLimits): Admission {
  const log = createLog("error", () => undefined);
  return new Admission(
    resolveLimits(limits, { memoryBytes: 2 ** 30, openFiles: 1_000 }, false),
    new Refusals(log, new Registry()),
  );
}

const classes: readonly CallClass[] = ["nodes", "people", "open", "probes", "unproven"];

test("no class of calls keeps out another, whatever calls begin, change their class and end", () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const random = makeRandom(seed);
    const pick = makePick(random);
    const admission = makeAdmission({ maxCalls: 40, maxQueries: 20 });
    const victim = pick(...classes);
    const others = classes.filter((one) => one !== victim);
    const slots: CallSlot[] = [];
    for (let step = 0; step < 600; step += 1) {
      const slot = slots[Math.floor(random() * slots.length)];
      const did = pick("enter", "enter", "enter", "move", "leave");
      if (did === "enter") {
        const entered = admission.enter(pick(...others), "10.0.0.1:1");
        if (entered !== undefined) slots.push(entered);
      } else if (did === "move") slot?.move(pick(...others));
      else slot?.leave();
    }
    const admitted = Array.from({ length: 10 }, () => admission.enter(victim, "10.0.0.2:1"));
    expect(admitted, `seed ${seed}: ${victim}`).not.toContain(undefined);
    // What left made room again.
    for (const slot of [...slots, ...admitted]) slot?.leave();
    for (const one of classes) {
      const all = Array.from({ length: 10 }, () => admission.enter(one, "10.0.0.3:1"));
      expect(all, `seed ${seed}: ${one} again`).not.toContain(undefined);
    }
  }
});

test.each([
  { callClass: "nodes", max: 16 },
  { callClass: "people", max: 8 },
] as const)(
  "clients with the right of one node have at most $max $callClass calls, and leave other nodes and relays their places",
  ({ callClass, max }) => {
    const admission = makeAdmission({ maxCalls: 100, maxQueries: 100 });
    const enter = (rights: Rights) => admission.enter(callClass, "10.0.0.1:1", nodeOf(rights));
    const slots = Array.from({ length: 200 }, () => enter(nodeRights)).filter((slot) => slot !== undefined);
    expect(slots).toHaveLength(max);
    // Whose token was checked first.
    const unproven = admission.enter("unproven", "10.0.0.1:1");
    expect(unproven?.move(callClass, nodeOf(nodeRights))).toBe(false);
    const others = Array.from({ length: 40 }, (_, index) =>
      enter({ ...nodeRights, nodes: new Set([`other-${index}`]) }),
    );
    const relays = Array.from({ length: 40 }, () => enter(everyRight("relay")));
    expect([...others, ...relays]).not.toContain(undefined);
    // Its calls of the other class are counted separately.
    const otherClass = callClass === "nodes" ? "people" : "nodes";
    expect(admission.enter(otherClass, "10.0.0.1:1", nodeOf(nodeRights))).toBeDefined();
    slots[0]?.leave();
    expect(enter(nodeRights)).toBeDefined();
    expect(enter(nodeRights)).toBeUndefined();
  },
);
