import { Health } from "@kpng/process/health/health.ts";
import { createLog } from "@kpng/process/log.ts";
import { lockRules } from "../proxy/rules-lock.ts";

// A process that holds a lock of rules until it is killed. Arguments: name of the rules, folder. Prints "held".
const [, , name = "", folder = ""] = process.argv;
const options = {
  name,
  log: createLog("error"),
  health: new Health(),
  ...(folder === "" ? {} : { folders: [folder] }),
};
await using lock = await lockRules(options, new AbortController().signal);
process.stdout.write("held\n");
await new Promise(() => setInterval(() => lock, 60_000));
