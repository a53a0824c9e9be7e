import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:http2";
import { join } from "node:path";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { PositionService } from "@kpng/model/gen/kpng/position/v1/position_pb.ts";
import { dial } from "@kpng/process/connection/dial.ts";
import { readClientTls, readServerTls, readTokenFile } from "@kpng/process/credential-files.ts";
import { createLog } from "@kpng/process/log.ts";
import { type KeyPair, makeCertificates } from "@kpng/process/testing/certificates.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { afterAll, afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { TokenChecker, type TokenCheckerOptions } from "../../identity/token-checker.ts";
import { postJson } from "../../testing/raw-watch.ts";
import { accounts, TokenIssuer } from "../../testing/token-issuer.ts";
import { openStream, WatchedServer } from "../../testing/watched-server.ts";
import type { ServeOptions } from "./call-handler.ts";

const files = makeCertificates(afterAll);

let watched: WatchedServer;
let issuer: TokenIssuer;
let tokenFile: string;
beforeEach(() => {
  watched = new WatchedServer();
  issuer = new TokenIssuer();
  tokenFile = join(temporaryFolder(), "token");
});
afterEach(() => watched.stop());

/** Serves TLS with tokens. Every client of a test is on this machine, so loopback is not trusted. */
async function serve(
  options: Partial<TokenCheckerOptions> = {},
  ca?: string,
  serverOptions: Partial<ServeOptions> = {},
): Promise<void> {
  const log = createLog("error", () => undefined);
  const tokens = new TokenChecker({ review: issuer.review, audience: "kpng", accounts, log, ...options });
  const tls = readServerTls("", { ...files.server, ca }, true);
  await watched.serve({ tls, tokens, trustsLoopback: false, drainMs: 0, ...serverOptions });
}

/** Connects as a backend does, with the token file that the test has written. */
function dialWithToken(pair?: KeyPair): Transport {
  const tls = readClientTls({ ca: files.ca, ...pair });
  return dial({ api: `https://${watched.address}`, tls, token: readTokenFile(tokenFile) });
}

async function dialAs(...claims: Parameters<TokenIssuer["issue"]>): Promise<Transport> {
  writeFileSync(tokenFile, `${issuer.issue(...claims)}\n`);
  return dialWithToken();
}

async function codeOf(call: Promise<unknown>): Promise<Code | "ok"> {
  return call.then(
    () => "ok" as const,
    (error: unknown) => ConnectError.from(error).code,
  );
}

test("a token adds to the rights of a certificate, and a certificate of another CA gives none", async () => {
  await serve({}, files.ca);
  writeFileSync(tokenFile, issuer.issue({ node: "n1" }));
  const both = dialWithToken(files.clientWith(["kpng://node/n2"]));
  await openStream(both, "n1");
  await openStream(both, "n2");
  const others = makeCertificates();
  const foreign = dialWithToken(others.clientWith(["kpng://node/n2"]));
  await openStream(foreign, "n1");
  expect(await codeOf(openStream(foreign, "n2"))).toBe(Code.PermissionDenied);
});

test("a stream ends with UNAUTHENTICATED when its token is revoked, and the next uses the new token file", async () => {
  await serve({ reviewMs: 20 });
  const transport = await dialAs({ node: "n1" });
  const { ended } = await openStream(transport, "n1");
  issuer.answer = { kind: "invalid", reason: "pod not found" };
  await expect(ended).rejects.toMatchObject({ code: Code.Unauthenticated });
  expect(await codeOf(openStream(transport, "n1"))).toBe(Code.Unauthenticated);
  issuer.answer = undefined;
  writeFileSync(tokenFile, issuer.issue({ node: "n1", expiresIn: 1_800 }));
  await openStream(transport, "n1");
});

/** Serves with reviews that last until `done` is resolved. `open` begins a call, with a token, over one connection. */
async function serveSlowly(options: Partial<ServeOptions> = {}) {
  const [done, began] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const review = async (token: string) => {
    began.resolve();
    await done.promise;
    return issuer.review(token);
  };
  await serve({ review }, undefined, options);
  const session = connect(`https://${watched.address}`, { ca: readFileSync(files.ca) }).on("error", () => undefined);
  onTestFinished(() => session.destroy());
  const headers = { "content-type": "application/grpc", authorization: `Bearer ${issuer.issue()}` };
  const open = (path: string) =>
    session.request({ ":method": "POST", ":path": path, ...headers }).on("error", () => undefined);
  return { session, open, done, began: began.promise };
}

test("a call that is cancelled while its token is reviewed leaves nothing behind", async () => {
  const { session, open, done, began } = await serveSlowly();
  const cancelled = open("/localv1.Sets/Watch");
  const check = open("/grpc.health.v1.Health/Check");
  const answered = once(check, "response");
  check.end(Buffer.alloc(5));
  await began;
  cancelled.close();
  await once(cancelled, "close");
  // The server answers the ping after it has read the reset.
  await new Promise((resolve) => session.ping(resolve));
  done.resolve();
  await answered;
  expect(watched.server.subscribers.open.size).toBe(0);
});

test("a Watch whose connection is asked to close while its token is reviewed ends, and the watcher continues", async () => {
  const { session, open, done, began } = await serveSlowly({ maxAgeMs: 50, ageIntervalMs: 1 });
  const call = open("/localv1.Sets/Watch").resume();
  const trailers = once(call, "trailers");
  await began;
  await once(session, "goaway");
  done.resolve();
  expect((await trailers)[0]).toMatchObject({ "grpc-status": "14" });
});

test("a token over plain TCP is refused by the client, and by a watcher that receives one", async () => {
  writeFileSync(tokenFile, issuer.issue());
  const log = createLog("error", () => undefined);
  const tokens = new TokenChecker({ review: issuer.review, audience: "kpng", accounts, log });
  await watched.serve({ tokens, trustsLoopback: false });
  expect(() => dial({ api: watched.address, token: readTokenFile(tokenFile) })).toThrow(/plain TCP/);
  const authorization = `Bearer ${readFileSync(tokenFile, "utf8")}`;
  const { answer } = await postJson(watched.address, `/${PositionService.typeName}/Check`, "{}", { authorization });
  expect(JSON.parse(answer)).toMatchObject({
    code: "unauthenticated",
    message: expect.stringContaining("over TLS only"),
  });
  expect(issuer.reviews).toBe(0);
});
