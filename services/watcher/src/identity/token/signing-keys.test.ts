import { expect, test } from "vitest";
import { TokenIssuer } from "../../testing/token-issuer.ts";
import { SigningKeys } from "./signing-keys.ts";
import { verifyToken } from "./verify-token.ts";

test("a token of a new key is accepted once the keys may be read again", async () => {
  const issuer = await TokenIssuer.make();
  let nowMs = 0;
  const keys = new SigningKeys(issuer, () => nowMs);
  const kindOf = async (token: string) =>
    (await verifyToken(token, { audience: "kpng", nowMs: Date.now() }, keys)).kind;
  expect(await kindOf(await issuer.sign())).toBe("verified");
  await issuer.newKey();
  const token = await issuer.sign();
  expect(await kindOf(token)).toBe("refused");
  expect(issuer.reads).toBe(1);
  nowMs += 10_000;
  expect(await kindOf(token)).toBe("verified");
  expect(issuer.reads).toBe(2);
});

test("keys are read again when they are old, and the last ones are used if that fails", async () => {
  const issuer = await TokenIssuer.make();
  let nowMs = 0;
  const keys = new SigningKeys(issuer, () => nowMs);
  const first = await keys.current();
  nowMs += 300_000;
  issuer.isDown = true;
  expect(await keys.current()).toBe(first);
  expect(issuer.reads).toBe(2);
});
