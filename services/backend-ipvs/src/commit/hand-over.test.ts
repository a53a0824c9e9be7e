import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { objectNames } from "../render/object-names.ts";
import { useTools } from "../testing/use-tools.ts";
import { handOver } from "./hand-over.ts";

const options = { names: objectNames(""), runTool: new RunTool(30_000), log: createLog("error", () => undefined) };
const servers = "create KPNGIPVS-SERVERS hash:ip,port family inet";
const handedOver = 'add KPNGIPVS-RECORD 0.0.0.1 comment "handed-over"';
const recordCreation = "create KPNGIPVS-RECORD hash:ip family inet maxelem 1048576 comment";
const handed = "handed over to kube-proxy: the next cleanup leaves its interface and virtual servers";

test.each([
  { what: "the record is written", sets: [servers, recordCreation], inputs: [handedOver], says: handed },
  {
    what: "without the ipset of the record, it is created",
    sets: [servers],
    inputs: [recordCreation, handedOver],
    says: handed,
  },
  {
    what: "a second run says that nothing is left",
    sets: [servers, recordCreation, handedOver],
    inputs: [],
    says: "nothing left to hand over: an earlier run has done it",
  },
  {
    what: "without our ipsets, there is nothing to hand over",
    sets: [],
    inputs: [],
    says: "nothing to hand over: kpng-ipvs has no ipsets on this node",
  },
])("$what", async ({ sets, inputs, says }) => {
  const tools = useTools({ ipset: `if [ "$1" = save ]; then cat << 'E'\n${sets.join("\n")}\nE\nfi` });
  const lines: string[] = [];
  await handOver({ ...options, log: createLog("info", (line) => void lines.push(line)) });
  expect(tools.readInputs()).toEqual(inputs);
  expect(lines.map((line) => JSON.parse(line).msg)).toEqual([says]);
});

test("nothing is changed if the ipsets cannot be read", async () => {
  const tools = useTools({ ipset: "exit 1" });
  await expect(handOver(options)).rejects.toMatchObject({ code: "READ_FAILED" });
  expect(tools.readInputs()).toEqual([]);
});
