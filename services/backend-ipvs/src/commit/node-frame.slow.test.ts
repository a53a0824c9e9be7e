import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/kernel-objects.ts";
import { frameLines, renderFrame } from "../render/render-frame.ts";
import { useTools } from "../testing/use-tools.ts";
import { NodeFrame } from "./node-frame.ts";

test("rules that another program flushes between the installation and its reading are installed again", async () => {
  const saved = join(temporaryFolder(), "saved");
  useTools({ "iptables-save": `cat ${saved}` });
  const names = objectNames("");
  const render = () => renderFrame({ names, family: "v4", node: nodePlan(), masqueradeBit: 14, isBesideFelix: false });
  const rules = frameLines(render(), () => false, 0)
    .join("\n")
    .replaceAll(/^-I (\S+)(?: \d+)? /gm, "-A $1 ");
  const frame = new NodeFrame({ family: "v4", names, runTool: new RunTool() });
  writeFileSync(saved, rules.replaceAll(/^-A KPNGIPVS-INPUT .*\n/gm, ""));
  await frame.installed(render());
  expect((await frame.compare(render)).kind).toBe("different");
  writeFileSync(saved, rules);
  await frame.installed(render());
  expect((await frame.compare(render)).kind).toBe("same");
});
