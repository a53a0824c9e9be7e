import { expect, test } from "vitest";
import { GracePeriods } from "./maps.ts";

test("what waits for a grace period is released only once the kernel has waited for one", async () => {
  let canWait = false;
  const grace = new GracePeriods(async () => canWait);
  const released: string[] = [];
  grace.after(() => released.push("first"));
  await expect(grace.pass()).rejects.toMatchObject({ code: "BPF_FAILED" });
  grace.after(() => released.push("second"));
  await expect(grace.pass()).rejects.toMatchObject({ code: "BPF_FAILED" });
  expect(released).toEqual([]);
  canWait = true;
  await grace.pass();
  expect(released.toSorted()).toEqual(["first", "second"]);
});
