import { makeRandom, makeRandomBelow } from "@kpng/process/testing/random.ts";
import { expect, test } from "vitest";
import { type Disturbance, planChaos } from "./chaos.ts";

const options = { durationMs: 600_000, nodes: ["n1", "n2", "n3"], watcherNodes: ["n1", "n2"], hasPrevious: true };
const seeds = Array.from({ length: 50 }, (_, index) => index);
const planOf = (seed: number): ReturnType<typeof planChaos> => planChaos(makeRandomBelow(makeRandom(seed)), options);

test("the same seed makes the same plan, and another seed another one", () => {
  expect(planOf(1)).toEqual(planOf(1));
  expect(planOf(1)).not.toEqual(planOf(2));
});

test("every disturbance occurs within ten minutes", () => {
  const kinds = new Set(planOf(1).map(({ disturbance }) => disturbance.kind));
  expect(kinds.size).toBe(8);
});

test.each(seeds)("at the end of plan %i, nothing is disturbed any more", (seed) => {
  const open = new Set<string>();
  const versions: Record<string, string> = { watcher: "current", backend: "current" };
  const apply = (disturbance: Disturbance): void => {
    switch (disturbance.kind) {
      case "partition":
        expect(open).not.toContain(disturbance.node);
        open.add(disturbance.node);
        break;
      case "end partition":
        open.delete(disturbance.node);
        break;
      case "stop API server":
        expect(open).not.toContain("API server");
        open.add("API server");
        break;
      case "start API server":
        open.delete("API server");
        break;
      case "change version":
        versions[disturbance.part] = disturbance.to;
        break;
      default:
    }
  };
  for (const { atMs, disturbance } of planOf(seed)) {
    expect(atMs).toBeLessThan(options.durationMs);
    apply(disturbance);
  }
  expect(open).toEqual(new Set());
  expect(versions).toEqual({ watcher: "current", backend: "current" });
});

test("the memory of one backend and of one watcher can be measured over time", () => {
  const hits = seeds.flatMap(planOf).filter(({ disturbance }) => ["kill", "delete pod"].includes(disturbance.kind));
  const isHit = (part: string, node: string, fromMs: number): boolean =>
    hits.some(
      ({ atMs, disturbance: d }) => "part" in d && "node" in d && d.part === part && d.node === node && atMs >= fromMs,
    );
  expect(isHit("backend", "n3", 0)).toBe(false);
  expect(isHit("watcher", "n2", 0)).toBe(true);
  expect(isHit("watcher", "n2", options.durationMs / 2)).toBe(false);
});
