import { expect, test } from "vitest";
import { ServiceElements } from "../elements/service-elements.ts";
import { noElements } from "../read/read-table.ts";
import { planInstall } from "./plan-table.ts";

const frame = {
  skeleton: "add chain ip kpng services\nflush chain ip kpng services\n",
  hooks:
    "add chain ip kpng nat_prerouting { type nat hook prerouting priority -100; }\nflush chain ip kpng nat_prerouting\n",
};

test("a full sync empties the base chains before it deletes chains of others, to which rules there may lead", async () => {
  const objects = {
    chains: ["services", "nat_prerouting", "pick_2", "foreign"],
    sets: [
      { kind: "map", name: "frontends" },
      { kind: "map", name: "foreign_map" },
    ],
  } as const;
  const elements = new ServiceElements({ family: "v4", name: "kpng" }, 1_000);
  const { last } = await planInstall(elements, { objects, elements: noElements }, frame);
  expect(last).toBe(
    `${frame.hooks}flush chain ip kpng foreign\ndelete map ip kpng foreign_map\ndelete chain ip kpng foreign\n`,
  );
});
