import { readFileSync, writeFileSync } from "node:fs";
import { parseOptions } from "../options.ts";
import { runProxy } from "../run-proxy.ts";
import type { GuestRun } from "./run-in-guest.ts";

// Runs the tests of one proxy inside a guest. Arguments: the file with the `GuestRun`, and the file for the results.

const [runFile = "", resultsFile = ""] = process.argv.slice(2);
const { args, ...run } = JSON.parse(readFileSync(runFile, "utf8")) as GuestRun;
const options = parseOptions(args);
if (options === undefined) throw new Error("a guest runs tests only");
// Everything takes longer here, and more tests at the same time would reach their time limits.
const testsPerCore = 2;
writeFileSync(resultsFile, JSON.stringify(await runProxy({ ...run, options }, testsPerCore)));
process.exit(0);
