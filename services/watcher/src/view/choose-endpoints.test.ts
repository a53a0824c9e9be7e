import { describe, expect, test } from "vitest";
import { type Candidate, chooseEndpoints, type NeededSets } from "./choose-endpoints.ts";

interface Named extends Candidate {
  readonly name: string;
}

type State = "ready" | "draining" | "starting" | "dead" | "readyButTerminating";

const conditions = {
  ready: { ready: true, serving: true, terminating: false },
  draining: { ready: false, serving: true, terminating: true },
  starting: { ready: false, serving: false, terminating: false },
  dead: { ready: false, serving: false, terminating: true },
  // publishNotReadyAddresses says ready whatever else is the case.
  readyButTerminating: { ready: true, serving: true, terminating: true },
};

function endpoint(
  name: string,
  state: State,
  nodeName = "other",
  hints: { zones?: string[]; nodes?: string[] } = {},
): Named {
  return {
    name,
    conditions: conditions[state],
    nodeName,
    hintedZones: hints.zones ?? [],
    hintedNodes: hints.nodes ?? [],
  };
}

const clusterOnly: NeededSets = { cluster: true, local: false };
const localOnly: NeededSets = { cluster: false, local: true };
const both: NeededSets = { cluster: true, local: true };

const a = (hints = {}, state: State = "ready") => endpoint("a", state, "here", hints);
const b = (hints = {}, state: State = "ready") => endpoint("b", state, "there", hints);
const c = (hints = {}, state: State = "ready") => endpoint("c", state, "far", hints);

interface Row {
  readonly name: string;
  readonly endpoints: readonly Named[];
  readonly needed: NeededSets;
  readonly zone?: string;
  readonly node?: string;
  readonly cluster: string;
  readonly local: string;
  readonly has: boolean;
}

const rows: readonly Row[] = [
  { name: "no endpoints at all", endpoints: [], needed: both, cluster: "", local: "", has: false },
  {
    name: "all ready ones without hints",
    endpoints: [a(), b()],
    needed: clusterOnly,
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "not those that are not ready",
    endpoints: [a(), b({}, "starting")],
    needed: both,
    cluster: "a",
    local: "a",
    has: true,
  },
  {
    name: "draining ones are no match for a ready one",
    endpoints: [a({}, "draining"), b()],
    needed: clusterOnly,
    cluster: "b",
    local: "",
    has: true,
  },
  {
    name: "draining ones when no ready one is left",
    endpoints: [a({}, "draining"), b({}, "dead"), c({}, "starting")],
    needed: clusterOnly,
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "ready and terminating counts as ready",
    endpoints: [a({}, "readyButTerminating"), b({}, "draining")],
    needed: both,
    cluster: "a",
    local: "a",
    has: true,
  },
  {
    name: "dead ones never",
    endpoints: [a({}, "dead"), b({}, "starting")],
    needed: both,
    cluster: "",
    local: "",
    has: false,
  },
  { name: "Local: those on the node", endpoints: [a(), b()], needed: localOnly, cluster: "", local: "a", has: true },
  {
    name: "Local: none here but some elsewhere, so drop and not reject",
    endpoints: [b(), c()],
    needed: localOnly,
    cluster: "",
    local: "",
    has: true,
  },
  {
    name: "Local: draining ones on the node although others elsewhere are ready",
    endpoints: [a({}, "draining"), b()],
    needed: both,
    cluster: "b",
    local: "a",
    has: true,
  },
  {
    name: "Local: a ready one on the node beats a draining one beside it",
    endpoints: [a({}, "draining"), endpoint("d", "ready", "here"), b()],
    needed: both,
    cluster: "b d",
    local: "d",
    has: true,
  },
  {
    name: "Local: only draining ones elsewhere still mean drop",
    endpoints: [b({}, "draining")],
    needed: localOnly,
    cluster: "",
    local: "",
    has: true,
  },
  {
    name: "both sets, all draining",
    endpoints: [a({}, "draining"), b({}, "draining")],
    needed: both,
    cluster: "a b",
    local: "a",
    has: true,
  },
  {
    name: "zone hints: those for the zone",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }), c({ zones: ["z1", "z2"] })],
    needed: clusterOnly,
    zone: "z2",
    cluster: "b c",
    local: "",
    has: true,
  },
  {
    name: "zone hints: one without a hint switches them off",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }), c()],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a b c",
    local: "",
    has: true,
  },
  {
    name: "zone hints: one without a hint that is not ready does not count",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }), c({}, "starting")],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "zone hints: nobody meant for the zone, so all",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] })],
    needed: clusterOnly,
    zone: "z3",
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "zone hints: only one that is not ready is meant for the zone, so all",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }, "starting")],
    needed: clusterOnly,
    zone: "z2",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "zone hints: a node without zone takes all",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] })],
    needed: clusterOnly,
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "zone hints: a hint for the zone without a name means a node without zone",
    endpoints: [a({ zones: [""] }), b({ zones: ["z2"] })],
    needed: clusterOnly,
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "zone hints do not touch the local set",
    endpoints: [a({ zones: ["z2"] }), b({ zones: ["z1"] })],
    needed: both,
    zone: "z1",
    cluster: "b",
    local: "a",
    has: true,
  },
  {
    name: "draining ones whatever their hints",
    endpoints: [a({ zones: ["z1"] }, "draining"), b({ zones: ["z2"] }, "draining")],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "node hints: those for the node",
    endpoints: [a({ nodes: ["here"] }), b({ nodes: ["there"] })],
    needed: clusterOnly,
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "node hints go before zone hints",
    endpoints: [a({ nodes: ["here"], zones: ["z1"] }), b({ nodes: ["there"], zones: ["z1"] })],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "node hints: nobody meant for the node, so zone hints decide",
    endpoints: [b({ nodes: ["there"], zones: ["z1"] }), c({ nodes: ["far"], zones: ["z2"] })],
    needed: clusterOnly,
    zone: "z1",
    cluster: "b",
    local: "",
    has: true,
  },
  {
    name: "node hints: one without a node hint switches them off, zone hints decide",
    endpoints: [a({ nodes: ["here"], zones: ["z1"] }), b({ zones: ["z1"] }), c({ nodes: ["far"], zones: ["z2"] })],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "node hints: a hint for the node on an endpoint elsewhere is followed",
    endpoints: [a({ nodes: ["there"] }), b({ nodes: ["here"] })],
    needed: clusterOnly,
    cluster: "b",
    local: "",
    has: true,
  },
  {
    name: "an endpoint without a node is on no node, not even on the one without a name",
    endpoints: [endpoint("a", "ready", "")],
    needed: both,
    node: "",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "a set that is not needed stays empty, and existence is told all the same",
    endpoints: [a(), b()],
    needed: { cluster: false, local: false },
    cluster: "",
    local: "",
    has: true,
  },
];

describe("chooseEndpoints takes", () => {
  test.each(rows)("$name", ({ endpoints, needed, zone = "", node = "here", cluster, local, has }) => {
    const choice = chooseEndpoints(endpoints, { name: node, zone }, needed);
    const names = (set: "cluster" | "local") =>
      [...choice.uses]
        .filter(([, use]) => use[set])
        .map(([candidate]) => candidate.name)
        .sort()
        .join(" ");
    expect({ cluster: names("cluster"), local: names("local"), has: choice.hasEndpoints }).toEqual({
      cluster,
      local,
      has,
    });
  });
});
