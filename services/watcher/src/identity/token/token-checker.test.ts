import { Code } from "@connectrpc/connect";
import { createLog } from "@kpng/process/log.ts";
import { waitMs } from "@kpng/process/wait.ts";
import { SignJWT, UnsecuredJWT } from "jose";
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { TokenIssuer } from "../../testing/token-issuer.ts";
import { TokenChecker, type TokenCheckerOptions } from "./token-checker.ts";
import { makeTokenMetrics } from "./token-metrics.ts";
import { rightsOfToken } from "./token-rights.ts";

const accounts = {
  node: new Set(["kube-system/kpng-node"]),
  state: new Set(["kube-system/kpng-relay"]),
  inspection: new Set(["ops/alice"]),
};

let issuer: TokenIssuer;
let checker: TokenChecker;
beforeEach(async () => {
  issuer = await TokenIssuer.make();
  make();
});
afterEach(() => checker.stop());

function make(options: Partial<TokenCheckerOptions> = {}): void {
  checker = new TokenChecker({
    authority: issuer,
    audience: "kpng",
    accounts,
    log: createLog("error", () => undefined),
    ...options,
  });
}

/** Returns "accepted", or why the token is refused. */
async function outcome(token: string): Promise<string> {
  const result = await checker.check(token);
  return result.kind === "accepted" ? "accepted" : result.problem.message;
}

const limit = { timeout: 30_000 };

describe("a token is refused", () => {
  test.each([
    { that: "has expired", claims: { expiresIn: -60 }, reason: "expired" },
    { that: "has another issuer", claims: { issuer: "https://evil.example" }, reason: '"iss"' },
    { that: "is for another audience", claims: { audience: "https://kubernetes.default.svc" }, reason: '"aud"' },
    { that: "is not a ServiceAccount's", claims: { account: "a:b:c" }, reason: "not a ServiceAccount's" },
  ])("that $that", async ({ claims, reason }) => {
    expect(await outcome(await issuer.sign(claims))).toContain(reason);
    expect(issuer.reviews).toBe(0);
  });

  test("that another key signed under the same key ID", async () => {
    await issuer.newKey({ isPublished: false, kid: "key-0" });
    expect(await outcome(await issuer.sign())).toContain("signature is invalid");
  });

  test("whose algorithm is none, or a shared secret", async () => {
    const claims = { sub: "system:serviceaccount:kube-system:kpng-node" };
    const unsecured = new UnsecuredJWT(claims)
      .setIssuer(issuer.issuer)
      .setAudience("kpng")
      .setExpirationTime("1h")
      .encode();
    expect(await outcome(unsecured)).toMatch(/algorithm is not allowed|malformed/);
    const shared = await new SignJWT(claims)
      .setProtectedHeader({ alg: "HS256", kid: "key-0" })
      .setIssuer(issuer.issuer)
      .setAudience("kpng")
      .setExpirationTime("1h")
      .sign(new TextEncoder().encode("a secret that is long enough for jose"));
    expect(await outcome(shared)).toContain("algorithm is not allowed");
  });

  test("that is not a token, or too long", async () => {
    expect(await outcome("a.b.c")).toContain("malformed");
    expect(await outcome("x".repeat(100_000))).toContain("too long");
  });

  test("that the API server refuses, and it is not reviewed again at once", async () => {
    issuer.answer = { kind: "invalid", reason: "pod not found" };
    const token = await issuer.sign();
    expect(await outcome(token)).toContain("pod not found");
    expect(await outcome(token)).toContain("pod not found");
    expect(issuer.reviews).toBe(1);
  });

  test("if the watcher may not review tokens", async () => {
    issuer.answer = { kind: "forbidden", reason: "cannot create resource tokenreviews" };
    expect(await outcome(await issuer.sign())).toContain("may not review tokens");
  });
});

test("an accepted token is verified and reviewed once, also if its calls come together", async () => {
  const token = await issuer.sign();
  expect(await Promise.all([outcome(token), outcome(token), outcome(token)])).toEqual(Array(3).fill("accepted"));
  expect(checker.check(token)).toMatchObject({ kind: "accepted" });
  expect(issuer).toMatchObject({ reads: 1, reviews: 1 });
});

test("a valid token of an account without rights is not reviewed", async () => {
  const token = await issuer.sign({ account: "default:default" });
  expect(await outcome(token)).toBe("accepted");
  expect(await outcome(token)).toBe("accepted");
  expect(issuer.reviews).toBe(0);
});

test("a token has one spelling: others, which decode to the same bytes, are refused", async () => {
  const token = await issuer.sign();
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const last = alphabet.indexOf(token.at(-1) ?? "");
  // The last digit of a signature of 64 bytes has four unused bits.
  const spelled = `${token.slice(0, -1)}${alphabet[last ^ 1]}`;
  expect(Buffer.from(spelled, "base64url")).toEqual(Buffer.from(token, "base64url"));
  for (const other of [spelled, `${token}==`]) expect(await outcome(other)).toBe("the token is malformed");
  expect(await outcome(token)).toBe("accepted");
  expect(issuer.reviews).toBe(1);
});

test("tokens do not make the watcher read the keys again and again while they cannot be read", async () => {
  issuer.isDown = true;
  for (let count = 0; count < 50; count++) {
    const token = await issuer.sign({ expiresIn: 100 + count });
    expect(await outcome(token)).not.toBe("accepted");
  }
  expect(issuer.reads).toBeLessThanOrEqual(3);
  issuer.isDown = false;
  await expect.poll(async () => outcome(await issuer.sign()), limit).toBe("accepted");
});

test("tokens with unknown key IDs do not make the watcher read the keys again and again", async () => {
  expect(await outcome(await issuer.sign())).toBe("accepted");
  await issuer.newKey({ isPublished: false, kid: "unknown" });
  const tokens = await Promise.all([1, 2, 3].map((expiresIn) => issuer.sign({ expiresIn: 100 * expiresIn })));
  for (const token of tokens) expect(await outcome(token)).toContain("not the cluster's");
  expect(issuer.reads).toBe(1);
});

test("a token whose first review is slow is revoked like any other", async () => {
  make({ reviewMs: 40 });
  checker.start();
  issuer.reviewDelayMs = 200;
  const result = await checker.check(await issuer.sign());
  if (result.kind === "refused") throw new Error(result.problem.message);
  result.token.calls += 1;
  issuer.answer = { kind: "invalid", reason: "pod not found" };
  await expect.poll(() => result.token.ended.aborted, limit).toBe(true);
});

test("with an interval of 0, a token is reviewed once", async () => {
  make({ reviewMs: 0 });
  checker.start();
  const token = await issuer.sign();
  const result = await checker.check(token);
  if (result.kind === "refused") throw new Error(result.problem.message);
  result.token.calls += 1;
  for (let check = 0; check < 3; check += 1) expect(await outcome(token)).toBe("accepted");
  // Longer than the shortest interval at which a checker looks for due reviews.
  const other = await issuer.sign({ node: "n2" });
  for (let turn = 0; turn < 20; turn += 1) await waitMs(10, new AbortController().signal);
  expect(await outcome(other)).toBe("accepted");
  expect(issuer.reviews).toBe(2);
});

describe("while the API server is down", () => {
  test("a token with a valid signature is accepted, and revoked once a review refuses it", async () => {
    make({ retryMs: 20 });
    checker.start();
    expect(await outcome(await issuer.sign())).toBe("accepted");
    issuer.isDown = true;
    const token = await issuer.sign({ node: "n2" });
    const result = await checker.check(token);
    if (result.kind === "refused") throw new Error(result.problem.message);
    result.token.calls += 1;
    expect(result.token.isReviewed).toBe(false);
    issuer.isDown = false;
    issuer.answer = { kind: "invalid", reason: "pod not found" };
    await expect.poll(() => result.token.ended.aborted, limit).toBe(true);
  });

  test("a reviewed token stays accepted", async () => {
    make({ reviewMs: 20 });
    checker.start();
    const result = await checker.check(await issuer.sign());
    if (result.kind === "refused") throw new Error(result.problem.message);
    result.token.calls += 1;
    issuer.isDown = true;
    const { reviews } = issuer;
    await expect.poll(() => issuer.reviews, limit).toBeGreaterThan(reviews);
    expect(result.token.ended.aborted).toBe(false);
  });

  test("a watcher that never read the keys refuses with UNAVAILABLE, and accepts later", async () => {
    issuer.isDown = true;
    const token = await issuer.sign();
    expect(await checker.check(token)).toMatchObject({ problem: { code: Code.Unavailable } });
    expect(await outcome(token)).toContain("ECONNREFUSED");
    issuer.isDown = false;
    await expect.poll(() => outcome(token), limit).toBe("accepted");
  });
});

test("a token ends its calls when it expires", async () => {
  let nowMs = Date.now();
  make({ unixMs: () => nowMs, retryMs: 20 });
  checker.start();
  const result = await checker.check(await issuer.sign({ expiresIn: 60 }));
  if (result.kind === "refused") throw new Error(result.problem.message);
  result.token.calls += 1;
  nowMs += 120_000;
  await expect.poll(() => result.token.ended.aborted, limit).toBe(true);
  expect(String(result.token.ended.reason)).toContain("expired");
});

test("tokens in use are never dropped to make room, and others are", async () => {
  make({ maxBytes: 4_000 });
  const tokens = await Promise.all([1, 2, 3].map((expiresIn) => issuer.sign({ expiresIn: 1_000 * expiresIn })));
  const results = [];
  for (const token of tokens) results.push(await checker.check(token));
  expect(results.map(({ kind }) => kind)).toEqual(["accepted", "accepted", "accepted"]);
  expect(checker.check(tokens[0] ?? "")).toBeInstanceOf(Promise);
  for (const result of results) if (result.kind === "accepted") result.token.calls += 1;
  make({ maxBytes: 2_000 });
  const used = await checker.check(tokens[0] ?? "");
  if (used.kind === "accepted") used.token.calls += 1;
  expect(await outcome(tokens[1] ?? "")).toContain("too many tokens are in use");
});

test.each([
  { account: "kube-system/kpng-node", nodeName: "n1", nodes: new Set(["n1"]), hasState: false, hasInspection: false },
  { account: "kube-system/kpng-node", nodeName: undefined, nodes: new Set(), hasState: false, hasInspection: false },
  { account: "default/kpng-node", nodeName: "n1", nodes: new Set(), hasState: false, hasInspection: false },
  { account: "kube-system/kpng-relay", nodeName: "n1", nodes: "all", hasState: true, hasInspection: false },
  { account: "ops/alice", nodeName: undefined, nodes: new Set(), hasState: false, hasInspection: true },
])("a token of $account on node $nodeName gives nodes $nodes", ({ account, nodeName, ...rights }) => {
  expect(rightsOfToken({ account, nodeName, expiresAtMs: 0 }, accounts)).toMatchObject(rights);
});

test("checks and reviews are counted by their results", async () => {
  const registry = new Registry();
  make({ metrics: makeTokenMetrics(registry) });
  const token = await issuer.sign();
  for (let call = 0; call < 3; call++) expect(await outcome(token)).toBe("accepted");
  await outcome("a.b.c");
  issuer.answer = { kind: "invalid", reason: "gone" };
  await outcome(await issuer.sign({ node: "n2" }));
  const counts = async (name: string): Promise<Readonly<Record<string, number>>> => {
    const { values = [] } = (await registry.getSingleMetric(name)?.get()) ?? {};
    return Object.fromEntries(values.map(({ labels, value }) => [labels.result, value]));
  };
  expect(await counts("kpng_token_checks_total")).toEqual({ known: 2, accepted: 1, refused: 2 });
  expect(await counts("kpng_token_reviews_total")).toEqual({ valid: 1, invalid: 1, forbidden: 0, unknown: 0 });
});
