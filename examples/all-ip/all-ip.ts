#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { flowsToForget, translationsIn } from "./flows.ts";
import { commit, forgetFlows, hasFamily, KernelError, readKernel, restoreCommand } from "./kernel.ts";
import { nothingActual, renderRules, renderTransaction } from "./rules.ts";
import { type Family, InputError, nothingWanted, readWanted, type Wanted } from "./wanted.ts";

const help = `Usage: all-ip.ts [--dry-run] [--cleanup] < node-state.ndjson

Sends every packet to an external IP, whatever its protocol and port, to an endpoint on this node.
Reads one {"Service":…,"Endpoints":…} a line, the whole state of the node; run it at every change:

  kpng-callout --api unix:///run/kpng/proxy.sock --node-name n1 --service-proxy-name allip --callout ./all-ip.ts

  --dry-run  print what iptables-restore would be told on a node without such rules; neither read nor change any
  --cleanup  read nothing, remove every rule and chain of this program
  --help     print this

Exit code: 0 done; 1 the kernel or a tool refused; 2 the input or an option was refused, the rules are as before.
`;

/** Makes the kernel agree with `wanted`, one transaction a family, and says in a line what it did. */
function sync(family: Family, wanted: Wanted): void {
  if (wanted[family].length === 0 && !hasFamily(family)) return;
  const actual = readKernel(family);
  const rules = renderRules(family, wanted[family]);
  const transaction = renderTransaction(actual, rules);
  if (transaction !== undefined) {
    commit(family, transaction);
    forgetFlows(flowsToForget(family, translationsIn(actual.rules), wanted[family]));
  }
  const addresses = wanted[family].length;
  say(
    `${family}: ${transaction === undefined ? "nothing to do" : "committed"}, ${addresses} external IPs, ${rules.length} rules`,
  );
}

/** Prints what an empty nat table would be given; asks the kernel nothing, so it works anywhere and for anybody. */
function print(family: Family, wanted: Wanted): void {
  const transaction = renderTransaction(nothingActual, renderRules(family, wanted[family]));
  process.stdout.write(`# ${restoreCommand(family)}\n${transaction ?? "# nothing to do\n"}`);
}

function main(): number {
  const { values } = parseArgs({
    options: { "dry-run": { type: "boolean" }, cleanup: { type: "boolean" }, help: { type: "boolean", short: "h" } },
  });
  if (values.help === true) {
    process.stdout.write(help);
    return 0;
  }
  const isDry = values["dry-run"] === true;
  if (isDry && values.cleanup === true)
    throw new InputError("--cleanup has no dry run: what it removes is in the kernel");
  const wanted = values.cleanup === true ? nothingWanted : readWanted(readFileSync(0, "utf8"));
  for (const note of wanted.notes) complain(note);
  // One family's failure must not keep the other one from its rules.
  let exitCode = 0;
  for (const family of ["v4", "v6"] as const) {
    try {
      (isDry ? print : sync)(family, wanted);
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      complain(error.message);
      exitCode = 1;
    }
  }
  return exitCode;
}

function say(text: string): void {
  process.stdout.write(`all-ip: ${text}\n`);
}

function complain(text: string): void {
  process.stderr.write(`all-ip: ${text}\n`);
}

try {
  process.exitCode = main();
} catch (error) {
  const isOption = error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
  if (!isOption && !(error instanceof InputError)) throw error;
  complain(isOption ? `${error.message} (see --help)` : `input refused, rules unchanged: ${error.message}`);
  process.exitCode = 2;
}
