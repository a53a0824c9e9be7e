import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect as connectTls, type SecureVersion } from "node:tls";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Sets as GlobalSets } from "@kpng/model/gen/globalv1/api_pb.ts";
import { Health } from "@kpng/model/gen/grpc/health/v1/health_pb.ts";
import { InspectService } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { Sets as LocalSets } from "@kpng/model/gen/localv1/api_pb.ts";
import { readServerTls } from "@kpng/process/credential-files.ts";
import { createLog } from "@kpng/process/log.ts";
import { type KeyPair, makeCertificates } from "@kpng/process/testing/certificates.ts";
import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { sendAll, WatchedServer } from "../../testing/watched-server.ts";
import type { ServeOptions } from "./call-handler.ts";

// Every client of a test is on this machine, so loopback is not trusted here.
// At the end, open connections are closed at once.
const untrusted: Partial<ServeOptions> = { trustsLoopback: false, drainMs: 0 };

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

const serve = (options: Partial<ServeOptions>): Promise<void> => watched.serve({ ...untrusted, ...options });

/** The calls whose rights differ, by what they read. Each resolves with its first answer. */
const calls = {
  health: (transport: Transport) => createClient(Health, transport).check({}),
  "view of n1": (transport: Transport) => watch(transport, "n1"),
  "view of n2": (transport: Transport) => watch(transport, "n2"),
  "whole state": (transport: Transport) => first(createClient(GlobalSets, transport).watch(sendAll([{}]))),
  "inspection of n1": (transport: Transport) => createClient(InspectService, transport).listNodes({ name: "n1" }),
  "inspection of n2": (transport: Transport) =>
    createClient(InspectService, transport).listNodeEndpoints({ nodeName: "n2" }),
  "inspection of all": (transport: Transport) => createClient(InspectService, transport).listNodes({}),
  "watched inspection": (transport: Transport) =>
    first(createClient(InspectService, transport).watchNodes({ name: "n1" })),
};
type Call = keyof typeof calls;

function watch(transport: Transport, nodeName: string): Promise<unknown> {
  return first(createClient(LocalSets, transport).watch(sendAll([{ NodeName: nodeName }])));
}

async function first(answers: AsyncIterable<unknown>): Promise<unknown> {
  for await (const answer of answers) return answer;
  return undefined;
}

/** Returns the calls that are allowed, and checks the status of the others. */
async function allowed(transport: Transport, refusal: Code): Promise<Call[]> {
  const names: Call[] = [];
  for (const [name, call] of Object.entries(calls) as [Call, (typeof calls)[Call]][]) {
    try {
      await call(transport);
      names.push(name);
    } catch (error) {
      expect(ConnectError.from(error).code, `${name}: ${error}`).toBe(refusal);
    }
  }
  return names;
}

const all = Object.keys(calls) as Call[];

describe("a client over TLS", () => {
  const files = makeCertificates(afterAll);
  const otherFiles = makeCertificates(afterAll);

  async function dialTls({ key, crt }: KeyPair, options: Partial<ServeOptions> = {}): Promise<Transport> {
    await serve({ tls: readServerTls("", { ...files.server, ca: files.ca }), ...options });
    const nodeOptions = { ca: readFileSync(files.ca), key: readFileSync(key), cert: readFileSync(crt) };
    return createGrpcTransport({ baseUrl: `https://${watched.address}`, nodeOptions });
  }

  test.each<{ uris: string[]; may: Call[] }>([
    { uris: [], may: ["health"] },
    { uris: ["kpng://node/n1"], may: ["health", "view of n1", "inspection of n1"] },
    {
      uris: ["kpng://state"],
      may: [
        ...(["health", "view of n1", "view of n2"] as const),
        ...(["whole state", "inspection of n1", "inspection of n2"] as const),
      ],
    },
    {
      uris: ["kpng://inspection"],
      may: ["health", "inspection of n1", "inspection of n2", "inspection of all", "watched inspection"],
    },
    { uris: ["kpng://state", "kpng://inspection"], may: all },
  ])("whose certificate has the URI names $uris may call exactly $may", async ({ uris, may }) => {
    expect(await allowed(await dialTls(files.clientWith(uris)), Code.PermissionDenied)).toEqual(may);
  });

  test.each([
    { that: "has expired", pair: () => files.clientWith(["kpng://node/n1"], -1), reason: "it has expired" },
    {
      that: "another CA issued",
      pair: () => otherFiles.clientWith(["kpng://node/n1"]),
      reason: "no CA of the watcher's --listen-tls-ca has signed it",
    },
  ])("whose certificate $that may call health only, and both sides say why", async ({ pair, reason }) => {
    const lines: string[] = [];
    const transport = await dialTls(pair(), { log: createLog("info", (line) => lines.push(line)) });
    expect(await allowed(transport, Code.Unauthenticated)).toEqual(["health"]);
    const refusal = `certificate "client", issued by "test ca", is not accepted: ${reason}`;
    await expect(calls["view of n1"](transport)).rejects.toThrow(refusal);
    expect(lines.join("")).toMatch(
      /"peer":"127\.0\.0\.1","reason":"certificate .* is not accepted.*"msg":"client has no rights"/,
    );
  });

  test("whose certificate another CA issued is refused in the handshake if anonymous clients have every right", async () => {
    const transport = await dialTls(otherFiles.clientWith(["kpng://node/n1"]), { allowsAnonymous: true });
    for (const [name, call] of Object.entries(calls)) {
      await expect(call(transport), name).rejects.toThrow(/alert|ECONNRESET|closed|reset/i);
    }
  });

  test("needs TLS 1.3", async () => {
    await dialTls(files.client);
    const { key, crt } = files.client;
    const client = {
      ca: readFileSync(files.ca),
      key: readFileSync(key),
      cert: readFileSync(crt),
      ALPNProtocols: ["h2"],
    };
    const connectWith = async (version: SecureVersion): Promise<string | null> => {
      const versions = { minVersion: version, maxVersion: version };
      const socket = connectTls({ ...watched.socketAddress, ...client, ...versions });
      onTestFinished(() => void socket.destroy());
      await once(socket, "secureConnect");
      return socket.getProtocol();
    };
    expect(await connectWith("TLSv1.3")).toBe("TLSv1.3");
    await expect(connectWith("TLSv1.2")).rejects.toThrow("protocol version");
  });

  test("cannot turn the stream of its own node into that of another, to acknowledge for it", async () => {
    const transport = await dialTls(files.clientWith(["kpng://node/n1"]));
    const watch = createClient(LocalSets, transport).watch(sendAll([{ NodeName: "n1" }, { NodeName: "n2" }]));
    const read = (async () => {
      for await (const _ of watch);
    })();
    await expect(read).rejects.toMatchObject({ code: Code.PermissionDenied });
    expect([...watched.server.subscribers.open].map(({ nodeName }) => nodeName)).not.toContain("n2");
  });
});

test("an open Watch call does not count as a stream until its client requests a view that it may read", async () => {
  await serve({ trustsLoopback: true });
  const watch = watched.dialWatch();
  const silent = watch.session.request({
    ":method": "POST",
    ":path": "/localv1.Sets/Watch",
    "content-type": "application/grpc+proto",
  });
  await once(silent, "response");
  await watch.received();
  expect(await watched.metric("kpng_subscribers", { kind: "local" })).toBe(1);
});

describe("a client over TCP without TLS", () => {
  const dial = (): Transport => createGrpcTransport({ baseUrl: `http://${watched.address}` });

  test.each<{ if: string; options: Partial<ServeOptions>; may: Call[] }>([
    { if: "it proves nothing", options: {}, may: ["health"] },
    { if: "anonymous clients are allowed", options: { allowsAnonymous: true }, may: all },
    { if: "it comes over loopback, which is trusted", options: { trustsLoopback: true }, may: all },
  ])("may call $may if $if", async ({ options, may }) => {
    await serve(options);
    expect(await allowed(dial(), Code.Unauthenticated)).toEqual(may);
  });
});
