import { expect, test } from "vitest";
import { familyPlan, frontend, servicePlan } from "../testing/plans.ts";
import { PrintedRuleSet } from "./printed-rule-set.ts";

const stages = { committing: () => undefined };

test("--dry-run prints what each sync would change, and a frontend that passes to another Service once", async () => {
  let text = "";
  const print = (part: string): void => {
    text += part;
  };
  const rules = new PrintedRuleSet({ family: "v4", maps: undefined, print });
  const sync = async (plan: ReturnType<typeof familyPlan>, touched: readonly `${string}/${string}`[] | "all") => {
    text = "";
    const { mode } = await rules.sync(plan, touched === "all" ? "all" : new Set(touched), stages);
    return { mode, lines: text.split("\n").filter(Boolean) };
  };
  const one = servicePlan("ns/a", [frontend()]);
  const line = (endpoint: string): string =>
    `TCP 10.96.0.1:80 pod balance ${endpoint}:8080; node,outside balance masquerade ${endpoint}:8080`;
  expect(await sync(familyPlan([one]), "all")).toEqual({ mode: "full", lines: [`+ ${line("10.1.1.1")} # ns/a`] });
  expect(await sync(familyPlan([one]), ["ns/a"])).toEqual({ mode: "none", lines: [] });
  const other = familyPlan([servicePlan("ns/b", [frontend()], ["10.1.1.2"])]);
  expect(await sync(other, ["ns/b", "ns/a"])).toEqual({
    mode: "partial",
    lines: [`- ${line("10.1.1.1")}`, `+ ${line("10.1.1.2")} # ns/b`],
  });
  expect(rules.desired.lines()).toEqual([`${line("10.1.1.2")} # ns/b`]);
  expect(await sync(familyPlan([]), ["ns/b"])).toEqual({ mode: "partial", lines: [`- ${line("10.1.1.2")}`] });
});
