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
  // publishNotReadyAddresses reports ready in every state.
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
  { name: "without endpoints, none", endpoints: [], needed: both, cluster: "", local: "", has: false },
  {
    name: "without hints, all ready endpoints",
    endpoints: [a(), b()],
    needed: clusterOnly,
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "no endpoint that is not ready",
    endpoints: [a(), b({}, "starting")],
    needed: both,
    cluster: "a",
    local: "a",
    has: true,
  },
  {
    name: "no draining endpoint if one is ready",
    endpoints: [a({}, "draining"), b()],
    needed: clusterOnly,
    cluster: "b",
    local: "",
    has: true,
  },
  {
    name: "draining endpoints if none is ready",
    endpoints: [a({}, "draining"), b({}, "dead"), c({}, "starting")],
    needed: clusterOnly,
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "an endpoint that is ready and terminating",
    endpoints: [a({}, "readyButTerminating"), b({}, "draining")],
    needed: both,
    cluster: "a",
    local: "a",
    has: true,
  },
  {
    name: "no endpoint that neither is ready nor serves",
    endpoints: [a({}, "dead"), b({}, "starting")],
    needed: both,
    cluster: "",
    local: "",
    has: false,
  },
  {
    name: "Local: the endpoints on the node",
    endpoints: [a(), b()],
    needed: localOnly,
    cluster: "",
    local: "a",
    has: true,
  },
  {
    name: "Local: none if all are on other nodes, and packets are dropped, not rejected",
    endpoints: [b(), c()],
    needed: localOnly,
    cluster: "",
    local: "",
    has: true,
  },
  {
    name: "Local: draining endpoints on the node, even if others are ready on other nodes",
    endpoints: [a({}, "draining"), b()],
    needed: both,
    cluster: "b",
    local: "a",
    has: true,
  },
  {
    name: "Local: no draining endpoint if one on the node is ready",
    endpoints: [a({}, "draining"), endpoint("d", "ready", "here"), b()],
    needed: both,
    cluster: "b d",
    local: "d",
    has: true,
  },
  {
    name: "Local: none if endpoints drain on other nodes, and packets are dropped",
    endpoints: [b({}, "draining")],
    needed: localOnly,
    cluster: "",
    local: "",
    has: true,
  },
  {
    name: "draining endpoints for both sets",
    endpoints: [a({}, "draining"), b({}, "draining")],
    needed: both,
    cluster: "a b",
    local: "a",
    has: true,
  },
  {
    name: "zone hints: the endpoints whose hints name the zone",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }), c({ zones: ["z1", "z2"] })],
    needed: clusterOnly,
    zone: "z2",
    cluster: "b c",
    local: "",
    has: true,
  },
  {
    name: "zone hints: all endpoints if one has no hint",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }), c()],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a b c",
    local: "",
    has: true,
  },
  {
    name: "zone hints: the hinted endpoints if only an endpoint that is not ready has no hint",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }), c({}, "starting")],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "zone hints: all endpoints if no hint names the zone",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] })],
    needed: clusterOnly,
    zone: "z3",
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "zone hints: all endpoints if the only one with a hint for the zone is not ready",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] }, "starting")],
    needed: clusterOnly,
    zone: "z2",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "zone hints: all endpoints on a node without a zone",
    endpoints: [a({ zones: ["z1"] }), b({ zones: ["z2"] })],
    needed: clusterOnly,
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: 'zone hints: on a node without a zone, the endpoints whose hints name zone ""',
    endpoints: [a({ zones: [""] }), b({ zones: ["z2"] })],
    needed: clusterOnly,
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "zone hints: the endpoints on the node in set local, whatever their hints",
    endpoints: [a({ zones: ["z2"] }), b({ zones: ["z1"] })],
    needed: both,
    zone: "z1",
    cluster: "b",
    local: "a",
    has: true,
  },
  {
    name: "draining endpoints, whatever their hints",
    endpoints: [a({ zones: ["z1"] }, "draining"), b({ zones: ["z2"] }, "draining")],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "node hints: the endpoints whose hints name the node",
    endpoints: [a({ nodes: ["here"] }), b({ nodes: ["there"] })],
    needed: clusterOnly,
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "node hints: node hints before zone hints",
    endpoints: [a({ nodes: ["here"], zones: ["z1"] }), b({ nodes: ["there"], zones: ["z1"] })],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "node hints: endpoints by zone hints if no hint names the node",
    endpoints: [b({ nodes: ["there"], zones: ["z1"] }), c({ nodes: ["far"], zones: ["z2"] })],
    needed: clusterOnly,
    zone: "z1",
    cluster: "b",
    local: "",
    has: true,
  },
  {
    name: "node hints: endpoints by zone hints if one endpoint has no node hint",
    endpoints: [a({ nodes: ["here"], zones: ["z1"] }), b({ zones: ["z1"] }), c({ nodes: ["far"], zones: ["z2"] })],
    needed: clusterOnly,
    zone: "z1",
    cluster: "a b",
    local: "",
    has: true,
  },
  {
    name: "node hints: an endpoint on another node whose hint names this node",
    endpoints: [a({ nodes: ["there"] }), b({ nodes: ["here"] })],
    needed: clusterOnly,
    cluster: "b",
    local: "",
    has: true,
  },
  {
    name: "Local: no endpoint without a node, even on a node without a name",
    endpoints: [endpoint("a", "ready", "")],
    needed: both,
    node: "",
    cluster: "a",
    local: "",
    has: true,
  },
  {
    name: "none for a set that is not needed, and hasEndpoints is set",
    endpoints: [a(), b()],
    needed: { cluster: false, local: false },
    cluster: "",
    local: "",
    has: true,
  },
];

describe("chooseEndpoints chooses", () => {
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
