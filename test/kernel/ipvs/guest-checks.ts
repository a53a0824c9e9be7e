import { wantedSysctls } from "@kpng/backend-ipvs/commit/prepare-kernel.ts";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { named, publicAddress, together, web } from "../../scenario/build.ts";
import type { State } from "../../scenario/manifest.ts";
import { addressOf, clusterIP, loadBalancerIP, outside, pod } from "../../scenario/packet.ts";
import { type Family, hosts } from "../../scenario/places.ts";
import { programFile } from "../backend/program-file.ts";
import type { TwoNodes } from "../laboratory/two-nodes.ts";
import type { NodeUnderTest } from "./node-under-test.ts";

const program = programFile("backend-ipvs");

type Check = (world: TwoNodes, node: NodeUnderTest) => Promise<readonly string[]>;

const options = { ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] };
const both = web(options, ["b", "c"]);
const onlyC = web(options, ["c"]);

/** Returns the state with an annotation for the scheduler of all Services. */
function withScheduler(state: State, scheduler: string): State {
  const annotations = { "kpng.io/ipvs-scheduler": scheduler };
  return {
    ...state,
    services: state.services.map((one) => ({ ...one, metadata: { ...one.metadata, annotations } })),
  };
}

/** Returns a line if a condition does not hold. */
function expectTrue(condition: boolean, said: string): readonly string[] {
  return condition ? [] : [said];
}

/** Checks beyond the scenarios, by name. Each begins with a state of its own. */
export const guestChecks: Readonly<Record<string, Check>> = {
  "a second sync changes nothing, and a restart changes nothing": async (_world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    const again = await node.ask({ kind: "apply", state: both });
    const checked = await node.ask({ kind: "repair" });
    const restarted = await node.ask({ kind: "start", settings: {}, state: both });
    return [...again.changes, ...checked.changes, ...restarted.changes];
  },

  "what another program deletes is repaired, and its own virtual servers stay": async (_world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    const damages = [
      "ipvsadm -d -u '[fd00:10:96::11]:80' -r '[fd00:10:1:2::13]:8080'",
      "ip link delete kpng-ipvs0",
      "iptables -t mangle -F KPNGIPVS-OUTPUT",
      "ip6tables -D INPUT -m comment --comment 'kpng ipvs' -j KPNGIPVS-INPUT",
    ];
    await node.ask({ kind: "shell", command: "ipvsadm -A -t 203.0.113.9:80 -s lc" });
    const wrong: string[] = [];
    for (const command of damages) {
      await node.ask({ kind: "shell", command });
      const { changes } = await node.ask({ kind: "repair" });
      if (changes.length === 0) wrong.push(`not noticed: ${command}`);
      const after = await node.ask({ kind: "repair" });
      wrong.push(...after.changes.map((change) => `after ${command}, the second repair changes ${change}`));
    }
    await node.ask({ kind: "apply", state: web(options, []) });
    const { output } = await node.ask({ kind: "shell", command: "ipvsadm -S -n" });
    await node.ask({ kind: "shell", command: "ipvsadm -D -t 203.0.113.9:80" });
    return [...wrong, ...expectTrue(output.includes("203.0.113.9:80 -s lc"), "the foreign virtual server is gone")];
  },

  "damage is seen without a view; links are set up, and replaced rules written at a start": async (_world, node) => {
    const damage = async (command: string): Promise<string> => {
      await node.ask({ kind: "shell", command });
      return (await node.ask({ kind: "damage" })).output;
    };
    await node.ask({ kind: "start", settings: {}, state: both });
    const signs = [await damage("true"), await damage("ipvsadm -C"), await damage("ip link set kpng-ipvs0 down")];
    await node.ask({ kind: "repair" });
    const { output: link } = await node.ask({ kind: "shell", command: "ip -o address show dev kpng-ipvs0 up" });
    const again = await node.ask({ kind: "repair" });
    const rules = "iptables -t mangle -S KPNGIPVS-OUTPUT";
    const { output: before } = await node.ask({ kind: "shell", command: rules });
    await node.ask({ kind: "shell", command: "iptables -t mangle -R KPNGIPVS-OUTPUT 1 -j ACCEPT" });
    await node.ask({ kind: "start", settings: {}, state: both });
    const { output: after } = await node.ask({ kind: "shell", command: rules });
    return [
      ...expectTrue(signs[0] === "", `damage: ${signs[0]}`),
      ...expectTrue(signs[1]?.includes("no virtual server") === true, `after ipvsadm -C: ${signs[1]}`),
      ...expectTrue(signs[2]?.includes("missing or down") === true, `with a link that is down: ${signs[2]}`),
      ...expectTrue(link.includes("10.96.0.11/32") && link.includes("fd00:10:96::11/128"), `not up: ${link}`),
      ...again.changes.map((change) => `the second repair changes ${change}`),
      ...expectTrue(after === before, `the rules are ${after}`),
    ];
  },

  "a firewall mark of another program stays, and --cleanup removes all that is ours": async (_world, node) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    const cleanUp = () => shell(`'${process.execPath}' '${program}' --cleanup 2>&1; echo "exit status $?"`);
    const ours = "ipset save; ip address; iptables-save; ip6tables-save";
    await node.ask({ kind: "start", settings: {}, state: web({ ...options, external: "Local" }, ["b", "c"]) });
    await shell("ipvsadm -A -f 1795162113 -s lc; iptables -A FORWARD -m set --match-set KPNGIPVS-MASQ src -j ACCEPT");
    await node.ask({ kind: "repair" });
    const marked = await shell("ipvsadm -S -n");
    // A set in use cannot be destroyed, and everything else is removed.
    const first = [await cleanUp(), await shell(ours)];
    await shell("iptables -D FORWARD -m set --match-set KPNGIPVS-MASQ src -j ACCEPT");
    const second = [await cleanUp(), await shell(ours)];
    const servers = await shell("ipvsadm -S -n; ipvsadm -D -f 1795162113");
    const left = (text = "") => text.split("\n").filter((line) => /kpng-?ipvs/i.test(line));
    return [
      ...expectTrue((marked.match(/^-A -f /gm) ?? []).length > 1, `no virtual servers with marks: ${marked}`),
      ...expectTrue(first[0]?.includes("exit status 1") === true, `with a set in use: ${first[0]}`),
      ...left(first[1]).filter((line) => !line.includes("KPNGIPVS-MASQ ")),
      ...expectTrue(second[0]?.includes("exit status 0") === true, `without: ${second[0]}`),
      ...left(second[1]),
      ...expectTrue(servers.trim() === "-A -f 1795162113 -s lc", `virtual servers are ${servers}`),
    ];
  },

  "a removed endpoint keeps its connection until it ends, also over a restart": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: web(options, ["b"]) });
    const agent = world.agentOf(pod("a"));
    const id = 900_001;
    const address = addressOf(both, clusterIP("web"), "v4");
    await agent.send({ kind: "open", id, protocol: "tcp", address, port: 80, from: undefined });
    const wrong: string[] = [];
    const look = async (when: string): Promise<void> => {
      const deadlineMs = performance.now() + 30_000;
      for (;;) {
        const { answered, name } = await agent.send({ kind: "look", id });
        if (answered > 0 && name === "b") return;
        if (performance.now() > deadlineMs) {
          wrong.push(`${when}: the connection gets ${answered} answers of ${name}`);
          return;
        }
      }
    };
    const weights = async (): Promise<string> =>
      (await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep '^-a -t 10.96.0.11:80' || true" })).output;
    await look("before");
    await node.ask({ kind: "apply", state: onlyC });
    await look("after the removal");
    wrong.push(...expectTrue((await weights()).includes("10.1.1.11") === false, "pod a is an endpoint"));
    wrong.push(
      ...expectTrue(/10\.1\.1\.12:8080 -m -w 0/.test(await weights()), `b has no weight 0: ${await weights()}`),
    );
    await node.ask({ kind: "start", settings: {}, state: onlyC });
    await look("after a restart");
    wrong.push(...expectTrue(/10\.1\.1\.12:8080 -m -w 0/.test(await weights()), "b is gone after a restart"));
    await node.ask({ kind: "apply", state: web(options, []) });
    await look("after the removal of all endpoints");
    await node.ask({ kind: "apply", state: both });
    await look("after its return");
    wrong.push(
      ...expectTrue(/10\.1\.1\.12:8080 -m -w 1/.test(await weights()), `b has no weight 1: ${await weights()}`),
    );
    await node.ask({ kind: "apply", state: onlyC });
    await agent.send({ kind: "end", id });
    // A closed connection counts for two minutes; this ends it now.
    await node.ask({ kind: "shell", command: "ipvsadm --set 1 1 1" });
    return wrong;
  },

  "a removed endpoint without connections is deleted, and a deleted Service leaves nothing": async (_world, node) => {
    const other = { ...options, number: 77 };
    const servers = async (): Promise<string> =>
      (await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep 10.96.0.77 || true" })).output;
    await node.ask({ kind: "start", settings: {}, state: web(other, ["b", "c"]) });
    await node.ask({ kind: "apply", state: web(other, ["c"]) });
    const first = await servers();
    await node.ask({ kind: "apply", state: web(other, ["c"]) });
    const second = await servers();
    await node.ask({ kind: "apply", state: both });
    await node.ask({ kind: "apply", state: both });
    const third = await servers();
    const { output: rest } = await node.ask({ kind: "shell", command: "ip address; ipset save" });
    return [
      ...expectTrue(/-t 10\.96\.0\.77:80 -r 10\.1\.1\.12:8080 -m -w 0/.test(first), `b has no weight 0: ${first}`),
      ...expectTrue(!second.includes("10.1.1.12") && second.includes("10.1.2.13"), `b is not deleted: ${second}`),
      ...expectTrue(third === "" && !rest.includes("10.96.0.77"), `the deleted Service left ${third}${rest}`),
    ];
  },

  "the node's own ports cannot be reached through service addresses": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    // An agent of the network listens at the addresses of its host alone; this one at all addresses of the node.
    const port = 8444;
    await AgentClient.start(world.laboratory, "n1", [port], ["::"]);
    const wrong: string[] = [];
    for (const [sender, name] of [
      [outside, "outside"],
      [pod("a"), "pod a"],
    ] as const) {
      for (const [address, expected] of [
        [hosts.n1.v4, "answer"],
        ["10.96.0.11", "refused"],
        ["198.51.100.10", "refused"],
        ["fd00:10:96::11", "refused"],
      ] as const) {
        const answer = await world.agentOf(sender).askOnce({ protocol: "tcp", address, port, timeoutMs: 30_000 });
        if (answer.kind !== expected) wrong.push(`${name} → ${address} port ${port}: ${JSON.stringify(answer)}`);
      }
    }
    return wrong;
  },

  "a connection to an address that is missing is served as soon as the address is back": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both });
    await node.ask({ kind: "shell", command: "ip link delete kpng-ipvs0" });
    const agent = world.agentOf(outside);
    // Round robin gives two connections of a family to both endpoints.
    const flows = ["v4", "v4", "v6", "v6"].map((family, at) => ({ family: family as Family, id: 900_010 + at }));
    for (const { family, id } of flows) {
      const address = addressOf(both, loadBalancerIP("web"), family);
      await agent.send({ kind: "open", id, protocol: "tcp", address, port: 80 });
    }
    await node.ask({ kind: "repair" });
    const wrong: string[] = [];
    const deadlineMs = performance.now() + 30_000;
    for (const { family, id } of flows) {
      let { name } = await agent.send({ kind: "look", id });
      while (name === undefined && performance.now() < deadlineMs) ({ name } = await agent.send({ kind: "look", id }));
      if (name === undefined) wrong.push(`${family}: no answer`);
      await agent.send({ kind: "end", id });
    }
    return wrong;
  },

  "node ports answer at an address that the node gains, after the next check, and not at one it loses": async (
    _world,
    node,
  ) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    const servers = () => shell("ipvsadm -S -n | grep -F -- '-A -t 192.0.2.77:30080' || true");
    await node.ask({ kind: "start", settings: {}, state: both });
    await shell("ip address add 192.0.2.77/32 dev lo");
    await node.ask({ kind: "repair" });
    const gained = await servers();
    await shell("ip address delete 192.0.2.77/32 dev lo");
    // Its endpoints have no connections, so they drain until the second check.
    await node.ask({ kind: "repair" });
    await node.ask({ kind: "repair" });
    return [...expectTrue(gained !== "", "not served"), ...expectTrue((await servers()) === "", "still served")];
  },

  "a Service has the scheduler of its annotation, and one that the kernel lacks stops nothing": async (_w, node) => {
    const servers = async (): Promise<string> =>
      (await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -F -- '-A -t 10.96.0.11:80'" })).output.trim();
    await node.ask({ kind: "start", settings: {}, state: withScheduler(both, "lc") });
    const first = await servers();
    const again = await node.ask({ kind: "apply", state: withScheduler(both, "lc") });
    await node.ask({ kind: "apply", state: withScheduler(both, "nosuch") });
    const second = await servers();
    const { output: trial } = await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -F 192.0.2.0 || true" });
    return [
      ...expectTrue(first === "-A -t 10.96.0.11:80 -s lc", `with lc: ${first}`),
      ...again.changes.map((change) => `the second sync changes ${change}`),
      ...expectTrue(second === "-A -t 10.96.0.11:80 -s rr", `with a scheduler that does not exist: ${second}`),
      ...expectTrue(trial === "", `a trial is left: ${trial}`),
    ];
  },

  "a foreign virtual server at an excluded address stays, and the rest of the Service is served": async (_w, node) => {
    const shell = async (command: string): Promise<string> => (await node.ask({ kind: "shell", command })).output;
    await node.ask({ kind: "start", settings: {}, state: web({ ...options, number: 77 }, ["b"]) });
    await shell("ipvsadm -A -t 10.96.0.12:80 -s lc");
    const state = web({ ...options, number: 12 }, ["b"]);
    await node.ask({ kind: "start", settings: {}, state, excludedCIDRs: ["10.96.0.12/32"] });
    const servers = await shell("ipvsadm -S -n | grep 10.96.0.12");
    // The endpoints of the Service of before drain until this sync, which finds them without connections.
    const drained = await node.ask({ kind: "apply", state });
    const before = await shell("ipvsadm -S -n | grep -F 10.96.0.77 || true");
    const again = await node.ask({ kind: "apply", state });
    const checked = await node.ask({ kind: "repair" });
    await node.ask({ kind: "start", settings: {}, state });
    const taken = await shell("ipvsadm -S -n | grep -F -- '-t 10.96.0.12:80'");
    return [
      ...expectTrue(servers.includes("-A -t 10.96.0.12:80 -s lc\n"), `excluded: ${servers}`),
      ...expectTrue(before === "", `left of the Service of before: ${before}; drained: ${drained.changes}`),
      ...again.changes.map((change) => `with an excluded address, a sync without a change changes ${change}`),
      ...checked.changes.map((change) => `with an excluded address, the check changes ${change}`),
      ...expectTrue(!servers.includes("-a -t 10.96.0.12:80"), `excluded: ${servers}`),
      ...expectTrue(servers.includes("-a -u 10.96.0.12:80 -r 10.1.1.12:8080"), `excluded: ${servers}`),
      ...expectTrue(taken.includes("-s rr") && taken.includes("-r 10.1.1.12:8080"), `not excluded: ${taken}`),
    ];
  },

  "strict ARP, timeouts and the other settings of the kernel are set, and --cleanup leaves them": async (_w, node) => {
    const shell = async (command: string): Promise<string> =>
      (await node.ask({ kind: "shell", command })).output.trim();
    const settings = wantedSysctls({ isStrictArp: true });
    const read = `cd /proc/sys && cat ${settings.map(([name]) => name).join(" ")}`;
    const timeouts = await shell("ipvsadm -L --timeout");
    await node.ask({ kind: "settings", timeouts: { tcpMs: 901_000, tcpFinMs: 121_000, udpMs: 301_000 } });
    await node.ask({ kind: "start", settings: {}, state: both });
    const [before, set] = [await shell(read), await shell("ipvsadm -L --timeout")];
    await shell(`'${process.execPath}' '${program}' --cleanup 2>&1`);
    const after = await shell(read);
    await shell(`ipvsadm --set ${timeouts.replace(/^.*: /, "")}`);
    const wanted = settings.map(([, value]) => value).join("\n");
    return [
      ...expectTrue(before === wanted, `sysctls are ${before}`),
      ...expectTrue(set.endsWith("901 121 301"), `timeouts are ${set}`),
      ...expectTrue(after === wanted, `after --cleanup, sysctls are ${after}`),
    ];
  },

  "addresses and endpoints that the kernel refuses are left out, and everything else is served": async (_w, node) => {
    const externalIPs = [
      publicAddress(20),
      { v4: "239.1.1.1", v6: "ff05::1" },
      { v4: "203.0.113.5", v6: "::ffff:1.2.3.4" },
    ];
    const { services, slices } = web({ ...options, externalIPs, number: 78 }, ["b", "c"]);
    const refused = { IPv4: "255.255.255.255", IPv6: "ff05::7" } as const;
    const state = {
      services,
      slices: slices.map((slice) => ({
        ...slice,
        endpoints: slice.endpoints.flatMap((one) => [one, { ...one, addresses: [refused[slice.addressType]] }]),
      })),
    };
    // The kernel refuses a batch, and the next sync looks for the reason.
    const first = await node.ask({ kind: "start", settings: {}, state }).catch((error: unknown) => String(error));
    await node.ask({ kind: "apply", state });
    const { output } = await node.ask({ kind: "shell", command: "ip -o address show dev kpng-ipvs0; ipvsadm -S -n" });
    const again = await node.ask({ kind: "repair" });
    const other = await node.ask({ kind: "apply", state: both });
    return [
      ...expectTrue(String(first).includes("COMMIT_REJECTED"), `the first sync says ${JSON.stringify(first)}`),
      ...["198.51.100.20/32", "2001:db8:100::20/128", "-a -t 198.51.100.20:80 -r 10.1.2.13:8080"].flatMap((text) =>
        expectTrue(output.includes(text), `no ${text} in ${output}`),
      ),
      ...expectTrue(!/255\.255\.255\.255:|ff05::7|ff05::1\/128/.test(output), `not refused: ${output}`),
      ...again.changes.map((change) => `the check changes ${change}`),
      ...expectTrue(other.changes.length > 0, "the next state changes nothing"),
    ];
  },

  "a client that uses its port again leaves an endpoint that drains": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: web(options, ["b"]) });
    const agent = world.agentOf(pod("a"));
    const id = 900_020;
    const address = addressOf(both, clusterIP("web"), "v4");
    await agent.send({ kind: "open", id, protocol: "tcp", address, port: 80 });
    // The endpoint says its name, and the client resets the connection, so that its port is free.
    const client = `
      const socket = require("node:net").connect({ host: "${address}", port: 80, localPort: 45678, timeout: 30000 });
      socket.on("data", (data) => { process.stdout.write(data); socket.resetAndDestroy(); });
      socket.on("timeout", () => socket.destroy());
      socket.on("error", ({ code }) => process.stdout.write(code));`;
    const ask = () => world.laboratory.run(agent.name, [process.execPath, "-e", client]);
    const first = await ask();
    await node.ask({ kind: "apply", state: onlyC });
    const second = await ask();
    const weights = await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -- '-a -t 10.96.0.11:80'" });
    await agent.send({ kind: "end", id });
    return [
      ...expectTrue(first.includes('"b"'), `the only endpoint answers ${first}`),
      ...expectTrue(second.includes('"c"'), `while b drains, ${second} answers`),
      ...expectTrue(/10\.1\.1\.12:8080 -m -w 0/.test(weights.output), `b does not drain: ${weights.output}`),
    ];
  },

  "with the scheduler sh, a client of an endpoint that drains is served by another one": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: withScheduler(both, "sh") });
    const agent = world.agentOf(pod("a"));
    const id = 900_030;
    const address = addressOf(both, clusterIP("web"), "v4");
    await agent.send({ kind: "open", id, protocol: "tcp", address, port: 80 });
    const deadlineMs = performance.now() + 30_000;
    let { name } = await agent.send({ kind: "look", id });
    while (name === undefined && performance.now() < deadlineMs) ({ name } = await agent.send({ kind: "look", id }));
    const other = name === "b" ? "c" : "b";
    await node.ask({ kind: "apply", state: withScheduler(web(options, [other]), "sh") });
    const { output } = await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -- '-t 10.96.0.11:80'" });
    const answer = await agent.askOnce({ protocol: "tcp", address, port: 80, timeoutMs: 30_000 });
    await agent.send({ kind: "end", id });
    return [
      ...expectTrue(output.includes("-A -t 10.96.0.11:80 -s sh -b sh-fallback\n"), `virtual servers are ${output}`),
      ...expectTrue(/ -m -w 0$/m.test(output), `${name} does not drain: ${output}`),
      ...expectTrue(JSON.stringify(answer).includes(`"${other}"`), `instead of ${other}: ${JSON.stringify(answer)}`),
    ];
  },

  "an external IP that is the node's own goes before a node port of the same number": async (world, node) => {
    const nodePort = web({ ports: [{ port: 80, nodePort: 30_080 }] }, ["b"]);
    const external = named("ip", { number: 78, ports: [{ port: 30_080 }], externalIPs: [hosts.n1] }, ["c"]);
    const agent = world.agentOf(outside);
    const names: string[] = [];
    await node.ask({ kind: "start", settings: {}, state: nodePort });
    for (const state of [together(nodePort, external), nodePort]) {
      await node.ask({ kind: "apply", state });
      // Round robin: two connections of a family reach both endpoints of a virtual server.
      for (const address of [hosts.n1.v4, hosts.n1.v4, hosts.n1.v6, hosts.n1.v6]) {
        const answer = await agent.askOnce({ protocol: "tcp", address, port: 30_080, timeoutMs: 30_000 });
        names.push(answer.kind === "answer" ? answer.name : answer.kind);
      }
    }
    return expectTrue(names.join("") === "ccccbbbb", `answers came from ${names.join()}`);
  },
};

/** Names of all checks. */
export const guestCheckNames: readonly string[] = Object.keys(guestChecks);
