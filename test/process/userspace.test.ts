import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { oneService } from "./one-service.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// kpng-userspace as a user without any rights starts it: as root without capabilities, or as the user of the tests.
const { at } = usePrograms();

const withoutRights = process.getuid?.() === 0 ? ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] : [];

/** Starts `kpng file to-local to-userspace` on a state, and collects what it prints. */
function serve(state: unknown, args: readonly string[]) {
  writeFileSync(at("state.json"), JSON.stringify(state));
  const source = [resolve(kpngMain), "file", "-i", at("state.json")];
  const sink = ["to-local", "to-userspace", "--node-name", "n1", "--state-dir", "none", ...args];
  const [program = "", ...rest] = [...withoutRights, process.execPath, ...source, ...sink];
  const child = spawn(program, rest, { stdio: ["ignore", "pipe", "pipe"] });
  const text = { out: "", log: "" };
  child.stdout.setEncoding("utf8").on("data", (data: string) => {
    text.out += data;
  });
  child.stderr.setEncoding("utf8").on("data", (data: string) => {
    text.log += data;
  });
  const ended = once(child, "close");
  return {
    text,
    ended,
    /** Waits until something holds; fails when the program ends. */
    until: async (what: string, holds: () => boolean | Promise<boolean>): Promise<void> => {
      while (!(await holds())) {
        if (child.exitCode !== null) throw new Error(`the program ended before ${what}:\n${text.out}${text.log}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    [Symbol.asyncDispose]: async () => {
      child.kill();
      await ended;
    },
  };
}

test("without any rights, Services answer at local ports, whose mapping is printed", { timeout: 60_000 }, async () => {
  await using server = createServer((socket) => socket.end("tcp")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const target = server.address() as AddressInfo;
  const datagrams = createSocket("udp4", (_data, from) => datagrams.send("udp", from.port, from.address));
  datagrams.bind(target.port, "127.0.0.1");
  await using program = serve(oneService(target.port, ["TCP", "UDP"]), ["--map", "127.0.0.1"]);
  const portOf = (protocol: string): number =>
    Number(new RegExp(` ${protocol} \\S+ -> 127\\.0\\.0\\.1:(\\d+)\\n`).exec(program.text.out)?.[1]);
  await program.until("the mapping", () => portOf("TCP") > 0 && portOf("UDP") > 0);
  const client = connect(portOf("TCP"), "127.0.0.1");
  const [answer] = await once(client, "data");
  expect(String(answer)).toBe("tcp");
  const udp = createSocket("udp4");
  const timer = setInterval(() => udp.send("x", portOf("UDP"), "127.0.0.1"), 100);
  const [said] = await once(udp, "message");
  clearInterval(timer);
  expect(String(said)).toBe("udp");
  for (const socket of [udp, datagrams]) socket.close();
});

test("without the rights for redirection the program ends, with the reason and the way that needs none", async () => {
  await using program = serve(oneService(1), []);
  const [status] = await program.ended;
  expect(status, program.text.log).toBe(1);
  expect(program.text.log).toMatch(/ENTRY_UNAVAILABLE.*packets cannot be redirected: .*--map 127\.0\.0\.1/);
});

test("--map has a local port for each service port of the whole cluster, which leads to its own endpoint", {
  timeout: 120_000,
}, async () => {
  // Endpoints of Services in several namespaces, on other nodes; each answers with the name of its service port.
  const items: unknown[] = [];
  const servers: Server[] = [];
  const frontends = new Map<string, string>();
  for (let number = 0; number < 60; number++) {
    const name = `s${number}`;
    const namespace = `team-${number % 5}`;
    const ip = `10.96.1.${number}`;
    const ports = await Promise.all(
      ["http", "admin"].slice(0, 1 + (number % 2)).map(async (port, index) => {
        const server = createServer((socket) => socket.end(`${namespace}/${name}:${port}`)).listen(0, "127.0.0.1");
        await once(server, "listening");
        servers.push(server);
        frontends.set(`${namespace}/${name}:${port}`, `${ip}:${80 + index}`);
        return { name: port, protocol: "TCP", port: 80 + index, target: (server.address() as AddressInfo).port };
      }),
    );
    items.push(
      {
        apiVersion: "v1",
        kind: "Service",
        metadata: { name, namespace },
        spec: {
          clusterIP: ip,
          clusterIPs: [ip],
          ports: ports.map(({ target, ...port }) => ({ ...port, targetPort: target })),
        },
      },
      {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { name: `${name}-1`, namespace, labels: { "kubernetes.io/service-name": name } },
        addressType: "IPv4",
        ports: ports.map(({ name: port, target }) => ({ name: port, protocol: "TCP", port: target })),
        endpoints: [{ addresses: ["127.0.0.1"], nodeName: `n${number % 7}`, conditions: { ready: true } }],
      },
    );
  }
  await using program = serve({ apiVersion: "v1", kind: "List", items }, ["--map", "127.0.0.1"]);
  const lines = () => [...program.text.out.matchAll(/^(\S+) TCP (\S+) -> 127\.0\.0\.1:(\d+)$/gm)];
  await program.until("the mapping", () => lines().length === frontends.size);
  expect(new Map(lines().map(([, name, from]) => [name, from]))).toEqual(frontends);
  expect(new Set(lines().map(([, , , port]) => port)).size).toBe(frontends.size);
  const answers = lines().map(async ([, name, , port]) => {
    return [name, String(Buffer.concat(await connect(Number(port), "127.0.0.1").toArray()))];
  });
  for (const [name, answer] of await Promise.all(answers)) expect(answer).toBe(name);
  for (const server of servers) server.close();
});
