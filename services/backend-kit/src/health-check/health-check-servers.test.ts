import { once } from "node:events";
import { Agent, get, type IncomingHttpHeaders } from "node:http";
import { connect, createServer } from "node:net";
import { endpoint, type ServiceParts, service, view } from "@kpng/model/testing/views.ts";
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { freePort, listen } from "../../../../test/cluster/ports.ts";
import { createGate, createReadableLog, Mailbox } from "../testing/steps.ts";
import { desiredChecks, HealthCheckServers, type ListenAddresses } from "./health-check-servers.ts";

const local: ListenAddresses = { v4: { kind: "listed", addresses: ["127.0.0.1"] }, v6: { kind: "all" } };

interface Reply {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

function ask(port: number, agent?: Agent, host = "127.0.0.1"): Promise<Reply | "refused"> {
  return new Promise((resolve) => {
    get({ host, port, path: "/any", agent: agent ?? false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => (body += text));
      response.once("end", () => resolve({ status: response.statusCode, headers: response.headers, body }));
    }).once("error", () => resolve("refused"));
  });
}

function balanced(healthCheckNodePort: number, local: readonly string[] = [], name = "a/web") {
  const endpoints = local.map((address) => endpoint(address, { isOnNode: true }));
  const type = "LoadBalancer";
  return service(name, { type, externalTrafficPolicy: "Local", healthCheckNodePort, endpoints });
}

async function run(steps: (parts: Parts) => Promise<void>): Promise<void> {
  const { log, lines } = createReadableLog();
  const metrics = new Registry();
  const state: Parts["state"] = { isHealthy: true, failures: [] };
  const waits = new Mailbox<() => void>();
  const stop = new AbortController();
  const servers = new HealthCheckServers({
    log,
    metrics,
    isProxyHealthy: () => state.isHealthy,
    onFailures: (reasons) => {
      state.failures = reasons;
    },
    wait: (_ms, signal) => {
      const gate = createGate();
      signal.addEventListener("abort", () => gate.open());
      waits.put(() => gate.open());
      return gate.opened;
    },
  });
  const running = servers.run(stop.signal);
  try {
    await steps({ servers, lines, metrics, state, waits });
  } finally {
    stop.abort();
    await running;
  }
}

interface Parts {
  readonly servers: HealthCheckServers;
  readonly lines: readonly Record<string, unknown>[];
  readonly metrics: Registry;
  readonly state: { isHealthy: boolean; failures: readonly string[] };
  /** Each `next()` resolves at the wait before a retry, with a function that ends the wait. */
  readonly waits: Mailbox<() => void>;
}

test("the answer is the same as kube-proxy's", () =>
  run(async ({ servers, state }) => {
    const port = await freePort();
    await servers.sync({ view: view([balanced(port, ["10.1.0.1", "10.1.0.2"])]), addresses: () => local });
    expect(await ask(port)).toMatchObject({
      status: 200,
      headers: {
        "content-type": "application/json",
        "x-content-type-options": "nosniff",
        "x-load-balancing-endpoint-weight": "2",
      },
      body: '{\n\t"service": {\n\t\t"namespace": "a",\n\t\t"name": "web"\n\t},\n\t"localEndpoints": 2,\n\t"serviceProxyHealthy": true\n}',
    });
    state.isHealthy = false;
    expect(await ask(port)).toMatchObject({
      status: 503,
      headers: { "x-load-balancing-endpoint-weight": "2" },
      body: expect.stringContaining('"serviceProxyHealthy": false'),
    });
    state.isHealthy = true;
    await servers.sync({ view: view([balanced(port)]), addresses: () => local });
    expect(await ask(port)).toMatchObject({ status: 503, headers: { "x-load-balancing-endpoint-weight": "0" } });
  }));

test("a client with 300 silent connections loses its oldest, and load balancers keep theirs", () =>
  run(async ({ servers }) => {
    const port = await freePort();
    await servers.sync({ view: view([balanced(port, ["10.1.0.1"])]), addresses: () => local });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    await ask(port, agent);
    const [socket] = Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? []);
    const sockets = Array.from({ length: 300 }, () =>
      connect({ port, host: "127.0.0.1", localAddress: "127.0.0.2" })
        .on("error", () => undefined)
        .resume(),
    );
    await Promise.all(sockets.slice(0, 292).map((each) => once(each, "close")));
    expect(await ask(port, agent)).toMatchObject({ status: 200 });
    expect(Object.values(agent.freeSockets).flatMap((free) => free ?? [])).toEqual([socket]);
    agent.destroy();
    for (const each of sockets) each.destroy();
  }));

test("a server stays open while its port is unchanged, and closes with another port or without the Service", () =>
  run(async ({ servers }) => {
    const [port, other] = [await freePort(), await freePort()];
    await servers.sync({ view: view([balanced(port)]), addresses: () => local });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    await ask(port, agent);
    const [socket] = Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? []);
    await servers.sync({ view: view([balanced(port, ["10.1.0.1"])]), addresses: () => local });
    expect(await ask(port, agent)).toMatchObject({ status: 200 });
    expect(Object.values(agent.freeSockets).flatMap((sockets) => sockets ?? [])[0]).toBe(socket);
    agent.destroy();
    await servers.sync({ view: view([balanced(other, ["10.1.0.1"])]), addresses: () => local });
    expect(await ask(port)).toBe("refused");
    expect(await ask(other)).toMatchObject({ status: 200 });
    await servers.sync({ view: view([]), addresses: () => local });
    expect(await ask(other)).toBe("refused");
  }));

test("a port that another program uses is logged once, counted, and opened when it is free", () =>
  run(async ({ servers, lines, metrics, waits }) => {
    const blocker = createServer();
    const port = await listen(blocker);
    const sound = await freePort();
    const world = view([balanced(port, ["10.1.0.1"]), balanced(sound, [], "a/b")]);
    for (let sync = 0; sync < 2; sync++) await servers.sync({ view: world, addresses: () => local });
    expect(lines.filter((line) => line.level === "error")).toMatchObject([
      {
        msg: "cannot open health-check node port: trying again",
        service: "a/web",
        port,
        reason: expect.stringContaining("EADDRINUSE"),
      },
    ]);
    expect(await metrics.metrics()).toContain("health_checks_not_listening 1\n");
    expect(await ask(sound)).toMatchObject({ status: 503 });
    blocker.close();
    await once(blocker, "close");
    (await waits.next())();
    await waits.next();
    expect(await ask(port)).toMatchObject({ status: 200 });
    expect(await metrics.metrics()).toContain("health_checks_not_listening 0\n");
  }));

test("an address that cannot be bound does not close the port on the other addresses", () =>
  run(async ({ servers, lines, metrics, state }) => {
    const port = await freePort();
    // Reserved for documentation, so no machine has it.
    const addresses = () => ({ ...local, v4: { kind: "listed", addresses: ["192.0.2.1", "127.0.0.1"] } }) as const;
    for (let sync = 0; sync < 2; sync++) {
      await servers.sync({ view: view([balanced(port, ["10.1.0.1"])]), addresses });
    }
    expect(await ask(port)).toMatchObject({ status: 200 });
    expect(lines).toMatchObject([{ msg: "cannot open health-check node port: trying again", host: "192.0.2.1", port }]);
    expect(state.failures).toEqual([expect.stringContaining(`192.0.2.1 port ${port}: `)]);
    expect(await metrics.metrics()).toContain("health_checks_not_listening 1\n");
  }));

test("a link-local address gets no listener, because it cannot be bound without a zone", () =>
  run(async ({ servers, lines, state }) => {
    const port = await freePort();
    const addresses = () => ({ ...local, v6: { kind: "listed", addresses: ["fe80::1", "::1"] } }) as const;
    const { service: v4 } = balanced(port);
    const dual = { ...v4, clusterIPs: { v4: ["10.96.0.1"], v6: ["fd00::1"] } };
    await servers.sync({ view: view([{ service: dual, endpoints: [] }]), addresses });
    expect(await ask(port, undefined, "::1")).toMatchObject({ status: 503 });
    expect([state.failures, lines]).toEqual([[], []]);
  }));

test("an address that the node gains later answers without a new view", () =>
  run(async ({ servers, waits }) => {
    const port = await freePort();
    const node = ["127.0.0.1"];
    const addresses = () => ({ ...local, v4: { kind: "listed", addresses: [...node] } }) as const;
    await servers.sync({ view: view([balanced(port, ["10.1.0.1"])]), addresses });
    expect(await ask(port, undefined, "127.0.0.2")).toBe("refused");
    node.push("127.0.0.2");
    (await waits.next())();
    await waits.next();
    expect(await ask(port, undefined, "127.0.0.2")).toMatchObject({ status: 200 });
    expect(await ask(port)).toMatchObject({ status: 200 });
  }));

test("a family whose rules are not installed keeps its checks", () =>
  run(async ({ servers }) => {
    const [port, other] = [await freePort(), await freePort()];
    const addresses = () => local;
    await servers.sync({ view: view([balanced(port, ["10.1.0.1"])]), addresses });
    await servers.sync({ view: view([balanced(other, ["10.1.0.1"])]), addresses, families: ["v6"] });
    expect([await ask(port), await ask(other)]).toMatchObject([{ status: 200 }, "refused"]);
    await servers.sync({ view: view([balanced(other, ["10.1.0.1"])]), addresses, families: ["v4"] });
    expect([await ask(port), await ask(other)]).toMatchObject(["refused", { status: 200 }]);
  }));

test("a change of one Service leaves the checks of the others alone, which are not looked at", () =>
  run(async ({ servers }) => {
    const [port, other] = [await freePort(), await freePort()];
    const [web, b] = [balanced(port, ["10.1.0.1"]), balanced(other, [], "a/b")];
    const addresses = () => local;
    await servers.sync({ view: view([web, b]), addresses });
    const { services, ...rest } = view([b]);
    const lookedAt: string[] = [];
    const get = (key: `${string}/${string}`) => {
      lookedAt.push(key);
      return services.get(key);
    };
    const changed = new Set(["a/web", "a/c"] as const);
    await servers.sync({ view: { ...rest, services: { get } as typeof services }, addresses, changed });
    expect(lookedAt).toEqual(["a/web", "a/c"]);
    expect([await ask(port), await ask(other)]).toMatchObject(["refused", { status: 503 }]);
  }));

test("two Services can exchange their ports in one sync", () =>
  run(async ({ servers, lines }) => {
    const [one, two] = [await freePort(), await freePort()];
    const both = (first: number, second: number) => view([balanced(first, ["10.1.0.1"]), balanced(second, [], "a/b")]);
    await servers.sync({ view: both(one, two), addresses: () => local });
    await servers.sync({ view: both(two, one), addresses: () => local });
    expect(await ask(two)).toMatchObject({ body: expect.stringContaining('"name": "web"') });
    expect(await ask(one)).toMatchObject({ body: expect.stringContaining('"name": "b"') });
    expect(lines).toEqual([]);
  }));

const loadBalancer: ServiceParts = {
  type: "LoadBalancer",
  externalTrafficPolicy: "Local",
  healthCheckNodePort: 31_000,
  ips: ["10.96.0.10", "fd00::10"],
};
const here = { isOnNode: true };
const draining = { ...here, conditions: { ready: false, serving: true, terminating: true } };

const cases: { name: string; parts: ServiceParts; checks: string[] }[] = [
  { name: "a Service has one check per family", parts: {}, checks: ["v4:31000 0", "v6:31000 0"] },
  { name: "a Service of one family has one check", parts: { ips: ["10.96.0.10"] }, checks: ["v4:31000 0"] },
  { name: "a Service without the port has no check", parts: { healthCheckNodePort: 0 }, checks: [] },
  {
    name: "a Service with policy Cluster has no check, even with the port",
    parts: { externalTrafficPolicy: "Cluster" },
    checks: [],
  },
  { name: "a Service of another type than LoadBalancer has no check", parts: { type: "NodePort" }, checks: [] },
  {
    name: "each address counts once, in its family, if it is on the node and ready",
    parts: {
      endpoints: [
        endpoint("10.1.0.1", here),
        endpoint("10.1.0.1", { ...here, key: "other-port" }),
        endpoint("10.1.0.2", here),
        endpoint("10.1.0.3", draining),
        endpoint("10.1.0.4"),
        endpoint("fd00:1::1", here),
      ],
    },
    checks: ["v4:31000 2", "v6:31000 1"],
  },
];

test.each(cases)("$name", ({ parts, checks }) => {
  const desired = desiredChecks(view([service("a/web", { ...loadBalancer, ...parts })]), "a/web");
  expect(desired.map(({ family, port, localEndpoints }) => `${family}:${port} ${localEndpoints}`)).toEqual(checks);
});
