import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTls, type SecureContextOptions } from "node:tls";
import { readServerTls } from "@kpng/process/credential-files.ts";
import { makeCertificates, type TestCertificates } from "@kpng/process/testing/certificates.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { ServeOptions } from "../stream/serve/call-handler.ts";
import { WatchedServer } from "../testing/watched-server.ts";

let watched: WatchedServer;
beforeEach(() => {
  watched = new WatchedServer();
});
afterEach(() => watched.stop());

describe("over TLS", () => {
  let files: TestCertificates;
  beforeAll(() => {
    files = makeCertificates();
  });
  afterAll(() => files.remove());

  async function serveTls(options: Partial<ServeOptions>): Promise<SecureContextOptions> {
    await watched.serve({ ...options, tls: readServerTls("", { ...files.server, ca: files.ca }) });
    const { key, crt } = files.client;
    return { ca: readFileSync(files.ca), key: readFileSync(key), cert: readFileSync(crt) };
  }

  test("a connection at its maximum age receives GOAWAY, and then its stream ends", async () => {
    const context = await serveTls({ maxAgeMs: 200, ageIntervalMs: 1 });
    const session = connectHttp2(`https://${watched.address}`, { ...context, checkServerIdentity: () => undefined });
    const watch = watched.dialWatch(session);
    await watch.received(40);
    await watch.ended;
    expect({ status: watch.status, pushback: watch.pushback }).toEqual({ status: "14", pushback: "0" });
    expect(watch.events.slice(0, 2)).toEqual(["goaway", "trailers"]);
  });

  test("a connection without a call is ended", async () => {
    const bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const context = await serveTls({ idleMs: 60 });
    const tls = { ...context, checkServerIdentity: () => undefined, ALPNProtocols: ["h2"] };
    const socket = connectTls({ ...watched.socketAddress, ...tls });
    socket.on("error", () => undefined);
    await once(socket, "secureConnect");
    socket.write(bytes, "latin1");
    await once(socket.resume(), "close");
    await expect.poll(() => watched.metric("kpng_connections")).toBe(0);
  });
});
