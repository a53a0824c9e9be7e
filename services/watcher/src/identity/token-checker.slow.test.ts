import { PassThrough, Readable } from "node:stream";
import { Code } from "@connectrpc/connect";
import { createLog } from "@kpng/process/log.ts";
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { accounts, forge, TokenIssuer } from "../testing/token-issuer.ts";
import { makeReviewCounter, TokenChecker, type TokenCheckerOptions } from "./token-checker.ts";
import { kubeReviews, rightsOfToken } from "./token-review.ts";

let issuer: TokenIssuer;
let checker: TokenChecker;
beforeEach(() => {
  issuer = new TokenIssuer();
  make();
});
afterEach(() => checker.stop());

function make(options: Partial<TokenCheckerOptions> = {}): void {
  const log = createLog("error", () => undefined);
  checker = new TokenChecker({ review: issuer.review, audience: "kpng", accounts, log, ...options });
}

/** Returns "accepted", or why the token is refused. */
async function outcome(token: string, address?: string): Promise<string> {
  const result = await checker.check(token, address);
  return result.kind === "accepted" ? "accepted" : result.problem.message;
}

/** Checks a token, and returns the signal of a call with it. */
async function use(text: string): Promise<AbortSignal> {
  expect(await outcome(text)).toBe("accepted");
  return checker.follow(text, "", new PassThrough());
}

const limit = { timeout: 30_000 };

test.each([
  { that: "has expired", token: () => issuer.issue({ expiresIn: -60 }), reason: "expired" },
  { that: "is for another audience", token: () => issuer.issue({ audience: "other" }), reason: "audience" },
  {
    that: "is not a ServiceAccount's",
    token: () => issuer.issue({ account: "a:b:c" }),
    reason: "not a ServiceAccount's",
  },
  { that: "has no right", token: () => issuer.issue({ account: "default:default" }), reason: "has no right" },
  ...["", "a.b.c", "x"].map((text) => ({ that: `is "${text}"`, token: () => text, reason: "malformed" })),
  { that: "is too long", token: () => "x".repeat(100_000), reason: "too long" },
])("a token that $that is refused without a review", async ({ token, reason }) => {
  expect(await outcome(token())).toContain(reason);
  expect(issuer.reviews).toBe(0);
});

test("a token that the API server refuses is not reviewed again at once", async () => {
  issuer.answer = { kind: "invalid", reason: "pod not found" };
  const token = issuer.issue();
  expect(await outcome(token)).toContain("pod not found");
  expect(await outcome(token)).toContain("pod not found");
  expect(issuer.reviews).toBe(1);
});

test("an accepted token is reviewed once, also if its calls come together", async () => {
  const token = issuer.issue();
  expect(await Promise.all([outcome(token), outcome(token), outcome(token)])).toEqual(Array(3).fill("accepted"));
  expect(checker.check(token)).toMatchObject({ kind: "accepted" });
  expect(issuer.reviews).toBe(1);
});

test("forged tokens cause 20 reviews a minute for their address, and none for those of others", async () => {
  for (let count = 0; count < 50; count++) await outcome(forge({ node: `n${count}` }), "10.0.0.66");
  expect(issuer.reviews).toBe(20);
  expect(await checker.check(issuer.issue({ node: "new" }), "10.0.0.66")).toMatchObject({
    problem: { code: Code.Unavailable },
  });
  expect(await outcome(issuer.issue({ node: "new" }), "10.0.0.1")).toBe("accepted");
});

test("forged tokens that come together cause few more reviews than 20", async () => {
  await Promise.all(Array.from({ length: 200 }, (_, count) => outcome(forge({ node: `n${count}` }), "10.0.0.66")));
  expect(issuer.reviews).toBeLessThan(20 + 12);
});

test("one pod's valid tokens cause 60 reviews a minute, and none for those of other nodes", async () => {
  for (let count = 0; count < 80; count++) await outcome(issuer.issue({ expiresIn: 1_000 + count }), `10.0.0.${count}`);
  expect(issuer.reviews).toBe(60);
  expect(await outcome(issuer.issue({ node: "n2" }))).toBe("accepted");
});

test("a flood of tokens whose first reviews last does not delay the end of a revoked one", async () => {
  const never = new Promise<never>(() => undefined);
  const revoked = issuer.issue();
  make({ reviewMs: 20, review: (text) => (text === revoked ? issuer.review(text) : never) });
  const ended = await use(revoked);
  for (let count = 0; count < 50; count++) void checker.check(forge({ node: `n${count}` }), `10.0.0.${count}`);
  issuer.answer = { kind: "invalid", reason: "pod not found" };
  await expect.poll(() => ended.aborted, limit).toBe(true);
});

test("a revoked token that was not used for a while begins a call, which ends", async () => {
  let nowMs = 0;
  make({ now: () => nowMs, retryMs: 20 });
  const text = issuer.issue();
  expect(await outcome(text)).toBe("accepted");
  issuer.answer = { kind: "invalid", reason: "pod not found" };
  nowMs += 3_000_000;
  const ended = await use(text);
  await expect.poll(() => ended.aborted, limit).toBe(true);
  expect(await outcome(text)).toContain("pod not found");
});

test("a token ends its calls when it expires", async () => {
  let nowMs = Date.now();
  make({ unixMs: () => nowMs, retryMs: 20 });
  const ended = await use(issuer.issue({ expiresIn: 60 }));
  nowMs += 120_000;
  await expect.poll(() => ended.aborted, limit).toBe(true);
  expect(String(ended.reason)).toContain("expired");
});

describe("while the API server is down", () => {
  test("a token that was accepted stays accepted, and a new one is UNAVAILABLE until the API server is back", async () => {
    make({ reviewMs: 20, retryMs: 20 });
    const text = issuer.issue();
    const ended = await use(text);
    issuer.isDown = true;
    const { reviews } = issuer;
    await expect.poll(() => issuer.reviews, limit).toBeGreaterThan(reviews);
    expect(ended.aborted).toBe(false);
    expect(await outcome(text)).toBe("accepted");
    const renewed = issuer.issue({ expiresIn: 7_200 });
    expect(await checker.check(renewed)).toMatchObject({ problem: { code: Code.Unavailable } });
    expect(await outcome(renewed)).toMatch(/cannot check a new token: .*ECONNREFUSED.*try again/);
    issuer.isDown = false;
    await expect.poll(() => outcome(renewed), limit).toBe("accepted");
  });

  test("accepted tokens whose review is due are accepted at once, and do not wait for a request each", async () => {
    let nowMs = 0;
    let requests = 0;
    const hanging = Promise.withResolvers<void>();
    make({
      now: () => nowMs,
      review: async (text) => {
        if (!issuer.isDown) return issuer.review(text);
        requests += 1;
        await hanging.promise;
        return { kind: "unknown", reason: "timeout" };
      },
    });
    const tokens = Array.from({ length: 50 }, (_, count) => issuer.issue({ node: `n${count}` }));
    for (const token of tokens) expect(await outcome(token)).toBe("accepted");
    issuer.isDown = true;
    nowMs += 300_000;
    for (const token of tokens) expect(checker.check(token)).toMatchObject({ kind: "accepted" });
    hanging.resolve();
    await new Promise((resolve) => setImmediate(resolve));
    expect(requests).toBe(4);
  });

  test("new tokens do not cause a request each", async () => {
    issuer.isDown = true;
    for (let count = 0; count < 50; count++) await outcome(issuer.issue({ node: `n${count}` }));
    expect(issuer.reviews).toBeLessThanOrEqual(3);
  });
});

test.each([
  { account: "kube-system/kpng-node", nodeName: "n1", nodes: new Set(["n1"]), hasState: false, hasInspection: false },
  { account: "kube-system/kpng-node", nodeName: undefined, nodes: new Set(), hasState: false, hasInspection: false },
  { account: "default/kpng-node", nodeName: "n1", nodes: new Set(), hasState: false, hasInspection: false },
  { account: "kube-system/kpng-relay", nodeName: "n1", nodes: "all", hasState: true, hasInspection: false },
  { account: "ops/alice", nodeName: undefined, nodes: new Set(), hasState: false, hasInspection: true },
])("a token of $account on node $nodeName gives nodes $nodes", ({ account, nodeName, ...rights }) => {
  expect(rightsOfToken({ account, nodeName }, accounts)).toMatchObject(rights);
});

test("if the watcher may not review tokens, new ones are UNAVAILABLE, and reviews are counted by their results", async () => {
  const reviews = makeReviewCounter(new Registry());
  make({ reviews });
  const token = issuer.issue();
  for (let call = 0; call < 3; call++) expect(await outcome(token)).toBe("accepted");
  await outcome(forge({ node: "n2" }));
  issuer.answer = { kind: "forbidden", reason: "cannot create resource tokenreviews" };
  expect(await outcome(issuer.issue({ node: "n3" }))).toContain("may not create TokenReviews");
  const { values } = await reviews.get();
  const counts = Object.fromEntries(values.map(({ labels, value }) => [labels.result, value]));
  expect(counts).toEqual({ valid: 1, invalid: 1, forbidden: 1, unknown: 0 });
});

const user = {
  username: "system:serviceaccount:kube-system:kpng-node",
  extra: { "authentication.kubernetes.io/node-name": ["n1"] },
};
test.each([
  { says: "confirms it", status: 201, result: { authenticated: true, audiences: ["kpng"], user }, kind: "valid" },
  { says: "ignores audiences", status: 201, result: { authenticated: true, user }, kind: "invalid" },
  { says: "does not know it", status: 201, result: { authenticated: false }, kind: "invalid" },
  { says: "refuses the review", status: 403, result: undefined, kind: "forbidden" },
  { says: "fails", status: 500, result: undefined, kind: "unknown" },
])("a token is $kind if the API server $says", async ({ status, result, kind }) => {
  const body = Readable.from([Buffer.from(JSON.stringify({ status: result }))]);
  const answer = async () => ({ status, body });
  const connect = async () => ({ server: "fake", get: answer, post: answer, close: () => undefined });
  expect(await kubeReviews(connect, "kpng")("token", new AbortController().signal)).toMatchObject({ kind });
});
