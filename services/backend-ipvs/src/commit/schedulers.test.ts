import { service } from "@kpng/model/testing/views.ts";
import { createLog } from "@kpng/process/log.ts";
import { expect, test } from "vitest";
import { RunTool } from "../read/run-tool.ts";
import { useTools } from "../testing/use-tools.ts";
import { Schedulers, schedulerAnnotation } from "./schedulers.ts";

/**
 * Schedulers of a kernel that has all but `nosuch`. `tried` returns the lines that ipvsadm was given, and `rejected`
 * are the schedulers that the log names.
 */
function schedulers(mayTry = true) {
  const { readInputs } = useTools({
    ipvsadm: 'grep -q -- "-s nosuch" "$INPUT" && echo "Scheduler or persistence engine not found" >&2; exit 0',
  });
  const runTool = new RunTool(30_000);
  const rejected: unknown[] = [];
  const log = {
    error: (_text: string, fields?: { readonly [name: string]: unknown }) => void rejected.push(fields?.scheduler),
    info() {},
    debug() {},
    with: () => log,
  };
  return { known: new Schedulers({ runTool, standard: "rr", log, mayTry }), tried: readInputs, rejected };
}

function withAnnotation(value: string) {
  return service("ns/web", { annotations: { [schedulerAnnotation]: value } });
}

test("a Service has the scheduler of its annotation if the kernel has it, and it is tried once", async () => {
  const { known, tried } = schedulers();
  expect(await known.schedulerOf(service("ns/web"))).toBe("rr");
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
  expect(tried()).toEqual(["-D -u 192.0.2.0:9", "-A -u 192.0.2.0:9 -s lc", "-D -u 192.0.2.0:9"]);
});

test("an annotation with a scheduler that the kernel lacks, or with more than a name, is ignored and logged once", async () => {
  const { known, tried, rejected } = schedulers();
  await known.schedulerOf(withAnnotation("nosuch"));
  expect(await known.schedulerOf(withAnnotation("nosuch"))).toBe("rr");
  expect(await known.schedulerOf(withAnnotation("lc\n-C"))).toBe("rr");
  expect(tried()).toEqual(["-D -u 192.0.2.0:9", "-A -u 192.0.2.0:9 -s nosuch"]);
  expect(rejected).toEqual(["nosuch", "lc\n-C"]);
});

test("a scheduler that the kernel lacks is found, also while another one is tried", async () => {
  const exists = '[ ! -e "$0.trial" ] || { echo "Service already exists" >&2; exit 0; }';
  const add = `${exists}; grep -q nosuch "$INPUT" && echo "Scheduler or persistence engine not found" >&2 || touch "$0.trial"`;
  useTools({ ipvsadm: `if grep -q -e "^-A" "$INPUT"; then ${add}; else rm -f "$0.trial"; fi; exit 0` });
  const known = new Schedulers({ runTool: new RunTool(30_000), standard: "rr", log: createLog("off"), mayTry: true });
  const names = ["lc", "nosuch"].map((name) => known.schedulerOf(withAnnotation(name)));
  expect(await Promise.all(names)).toEqual(["lc", "rr"]);
});

test("without leave to try, every name counts as available", async () => {
  const { known, tried } = schedulers(false);
  expect(await known.schedulerOf(withAnnotation("mh"))).toBe("mh");
  expect(tried()).toEqual([]);
});

test("a scheduler that another instance tries at this moment counts as available", async () => {
  useTools({ ipvsadm: 'grep -q -- "^-A" "$INPUT" && echo "Service already exists" >&2; exit 0' });
  const log = createLog("error", () => undefined);
  const known = new Schedulers({ runTool: new RunTool(30_000), standard: "rr", log, mayTry: true });
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
});

test("a scheduler whose trial failed for another reason is tried again", async () => {
  const isFirst = '[ ! -e "$0.failed" ] && touch "$0.failed"';
  useTools({ ipvsadm: `grep -q -- "^-A" "$INPUT" && ${isFirst} && echo "Memory allocation problem" >&2; exit 0` });
  const log = createLog("off");
  const known = new Schedulers({ runTool: new RunTool(30_000), standard: "rr", log, mayTry: true });
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("rr");
  expect(await known.schedulerOf(withAnnotation("lc"))).toBe("lc");
});
