import { named, together, web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, clusterIP, pod } from "@kpng/laboratory/scenario/packet.ts";
import { both, type Checks, expectTrue, onlyC, options } from "./check.ts";

/** Endpoints that drain: they keep their connections and get no new ones. */
export const drainingChecks: Checks = {
  "a removed endpoint keeps its connection until it ends, also over a restart": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: web(options, ["b"]) });
    const agent = world.agentOf(pod("a"));
    const address = addressOf(both, clusterIP("web"), "v4");
    const flow = await agent.openFlow({ protocol: "tcp", address, port: 80 });
    const wrong: string[] = [];
    const look = async (when: string): Promise<void> => {
      const deadlineMs = performance.now() + 30_000;
      for (;;) {
        const { answered, name } = await flow.look();
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
    await flow.close();
    // A closed connection counts for two minutes; this ends it now.
    await node.ask({ kind: "shell", command: "ipvsadm --set 1 1 1" });
    return wrong;
  },

  "endpoints drain although another network namespace has virtual servers": async (world, node) => {
    const numbers = Array.from({ length: 60 }, (_, at) => 100 + at);
    const state = (endpoints: readonly ("b" | "c")[]) =>
      together(...numbers.map((number) => named(`drained-${number}`, { number }, endpoints)));
    await world.laboratory.add("other");
    const servers = numbers.map((number) => `-A -t 10.97.0.${number}:80 -s rr\n`);
    await world.laboratory.run("other", ["ipvsadm", "-R"], servers.join(""));
    await node.ask({ kind: "start", settings: {}, state: state(["b", "c"]) });
    let output = "none drains";
    // After a look that took long, the next one comes later.
    for (const deadlineMs = performance.now() + 120_000; output !== "" && performance.now() < deadlineMs; ) {
      await node.ask({ kind: "apply", state: state(["c"]) });
      ({ output } = await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -- '-w 0' || true" }));
    }
    await world.laboratory.run("other", ["ipvsadm", "-C"]);
    return expectTrue(output === "", `not deleted: ${output}`);
  },

  "a client that uses its port again leaves an endpoint that drains": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: web(options, ["b"]) });
    const agent = world.agentOf(pod("a"));
    const address = addressOf(both, clusterIP("web"), "v4");
    const flow = await agent.openFlow({ protocol: "tcp", address, port: 80 });
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
    await flow.close();
    return [
      ...expectTrue(first.includes('"b"'), `the only endpoint answers ${first}`),
      ...expectTrue(second.includes('"c"'), `while b drains, ${second} answers`),
      ...expectTrue(/10\.1\.1\.12:8080 -m -w 0/.test(weights.output), `b does not drain: ${weights.output}`),
    ];
  },

  "with the scheduler sh, a client of an endpoint that drains is served by another one": async (world, node) => {
    await node.ask({ kind: "start", settings: {}, state: both, scheduler: "sh" });
    const agent = world.agentOf(pod("a"));
    const address = addressOf(both, clusterIP("web"), "v4");
    const { name, close } = await agent.openFlow({ protocol: "tcp", address, port: 80, answerMs: 30_000 });
    const other = name === "b" ? "c" : "b";
    await node.ask({ kind: "apply", state: web(options, [other]) });
    const { output } = await node.ask({ kind: "shell", command: "ipvsadm -S -n | grep -- '-t 10.96.0.11:80'" });
    const answer = await agent.askOnce({ protocol: "tcp", address, port: 80, timeoutMs: 30_000 });
    await close();
    return [
      ...expectTrue(output.includes("-A -t 10.96.0.11:80 -s sh -b sh-fallback\n"), `virtual servers are ${output}`),
      ...expectTrue(/ -m -w 0$/m.test(output), `${name} does not drain: ${output}`),
      ...expectTrue(JSON.stringify(answer).includes(`"${other}"`), `instead of ${other}: ${JSON.stringify(answer)}`),
    ];
  },
};
