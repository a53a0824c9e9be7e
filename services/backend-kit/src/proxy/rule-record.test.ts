import { endpoint, service, view } from "@kpng/model/testing/views.ts";
import { expect, test } from "vitest";
import { FamilyPlanner } from "./family-planner.ts";
import { readProxySettings } from "./proxy-settings.ts";
import { chooseUse, formatRecord, type InstalledState, parseRecord, type SavedViewUse } from "./rule-record.ts";

const saved = { bootId: "36c8f5e2-7d0e", digest: "0123456789abcdef" };
const marked = (parts: Partial<typeof saved>): InstalledState => ({
  kind: "marked",
  record: formatRecord({ ...saved, ...parts }),
});

test.each<{ readonly name: string; readonly installed: InstalledState; readonly use: SavedViewUse }>([
  { name: "no rules", installed: { kind: "absent" }, use: "install" },
  { name: "rules that another program restored after a reboot", installed: marked({ bootId: "9a" }), use: "install" },
  { name: "the rules of the saved view", installed: marked({}), use: "repair" },
  { name: "rules that may be newer", installed: marked({ digest: "fedcba9876543210" }), use: "frame" },
  { name: "rules of an older release", installed: { kind: "unmarked" }, use: "keep" },
  { name: "rules with a record of another program", installed: { kind: "marked", record: "hello" }, use: "keep" },
])("with $name installed, a saved view is used to $use", ({ installed, use }) => {
  expect(chooseUse(installed, saved)).toBe(use);
});

test("a record without a boot is a record", () => {
  expect(parseRecord(formatRecord({ ...saved, bootId: "" }))).toEqual({ ...saved, bootId: "" });
});

test("the digest of the plans depends on the last view alone, and is that of no plans at the end", async () => {
  const settings = readProxySettings({}, true);
  const none = { v4: [], v6: [] };
  const [web, fewer] = [["10.0.0.1", "10.0.0.2"], ["10.0.0.1"]].map((addresses) =>
    service("a/web", { endpoints: addresses.map((address) => endpoint(address, { ports: [{ name: "", port: 80 }] })) }),
  ) as [ReturnType<typeof service>, ReturnType<typeof service>];
  const dns = service("a/dns", { ips: ["10.96.0.53"] });
  const [planner, other] = [new FamilyPlanner(settings, "v4"), new FamilyPlanner(settings, "v4")];
  await planner.plan(view([]), "all", none);
  const empty = planner.digest;
  await planner.plan(view([fewer, dns]), "all", none);
  const before = planner.digest;
  await planner.plan(view([web, dns]), new Set(["a/web"]), none);
  await other.plan(view([dns, web]), "all", none);
  expect(planner.digest).toBe(other.digest);
  expect(planner.digest).not.toBe(before);
  await planner.plan(view([]), new Set(["a/web", "a/dns"]), none);
  expect(planner.digest).toBe(empty);
});
