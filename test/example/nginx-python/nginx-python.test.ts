import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { nodeOperation, operationLine, serviceOperation } from "@kpng/backend-kit/plan/plan-message.ts";
import { familyPlan } from "@kpng/backend-kit/testing/family-plans.ts";
import { families } from "@kpng/model/address.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { nodePlanOf, plansOf, type RandomState, randomState } from "@kpng/service-plan/testing/random-views.ts";
import { expect, test } from "vitest";
import { makeRuleSet } from "../../../examples/nginx/nginx-backend.ts";

const program = resolve("examples/nginx-python/nginx.py");

/** The configuration that the example in TypeScript writes, with the Services in the order of the one in Python. */
async function fromTypeScript(state: RandomState, folder: string): Promise<string> {
  const texts = [];
  for (const family of families) {
    const path = join(folder, `services-${family}.conf`);
    const ruleSet = makeRuleSet(family, path, "true", { kind: "kernel" });
    const stages = { committing: () => undefined };
    const node = nodePlanOf(state, family);
    const plans = new Map(plansOf(state, node).map((plan) => [plan.key, plan]));
    await ruleSet.sync({ ...familyPlan(state.view, node), service: (key) => plans.get(key) }, "all", stages);
    texts.push(readFileSync(path, "utf8"));
  }
  return texts
    .join("")
    .replaceAll(/\.(clusterIP|externalIP|loadBalancerIP|nodePort)\./g, (kind) =>
      kind.replace("IP", "_ip").replace("Balancer", "_balancer").replace("Port", "_port"),
    );
}

/** The plan as kpng-callout passes it to a program. */
function linesOf(state: RandomState): string {
  const nodes = families.map((family) => nodeOperation(nodePlanOf(state, family)));
  const services = families.flatMap((family) =>
    plansOf(state, nodePlanOf(state, family)).map((plan) => serviceOperation(plan, state.view.services.get(plan.key))),
  );
  return [...nodes, ...services].map(operationLine).join("");
}

test("a proxy in Python makes of a plan what the one in TypeScript makes of the view, in random states", async (context) => {
  if (spawnSync("python3", ["--version"]).status !== 0) {
    if (process.env.CI === "true") expect.fail("CI must have python3");
    context.skip("python3 not found");
  }
  const first = Number(process.env.SEED ?? Math.floor(Math.random() * 1e6));
  let length = 0;
  for (let seed = first; seed < first + 10; seed++) {
    const folder = temporaryFolder();
    mkdirSync(join(folder, "python"));
    const state = randomState(seed);
    const options = { input: linesOf(state), encoding: "utf8" } as const;
    const { status, stderr } = spawnSync("python3", [program, join(folder, "python"), "true"], options);
    expect(status, `SEED=${seed}\n${stderr}`).toBe(0);
    const text = readFileSync(join(folder, "python/services.conf"), "utf8");
    length += text.length;
    // A plan has only CIDRs.
    const plain = (all: string): string => all.replaceAll(/(allow \S+)\/(?:32|128);/g, "$1;");
    expect(plain(text), `SEED=${seed}`).toBe(plain(await fromTypeScript(state, folder)));
  }
  expect(length).toBeGreaterThan(0);
});

test("a reload that fails fails the run, so that kpng-callout tries again", (context) => {
  context.skip(spawnSync("python3", ["--version"]).status !== 0, "python3 not found");
  const folder = temporaryFolder();
  writeFileSync(join(folder, "services.conf"), "old");
  expect(spawnSync("python3", [program, folder, "false"], { input: "" }).status).toBe(1);
});
