#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { flowsToForget, translationsIn } from "./flows.ts";
import { commit, forgetFlows, hasFamily, KernelError, readKernel, restoreCommand } from "./kernel.ts";
import { emptyNatTable, renderRules, renderTransaction } from "./rules.ts";
import { type Family, InputError, noAddresses, readWanted, type Wanted } from "./wanted.ts";

const help = `Usage: all-ip.ts [--dry-run] [--cleanup] < node-state.ndjson

Sends every packet to an external IP, whatever its protocol and port, to an endpoint on this node.
Reads the whole state of the node, one {"Service":…,"Endpoints":…} per line. Run it after every change:

  kpng-callout --api unix:///run/kpng/proxy.sock --node-name n1 --service-proxy-name allip --callout ./all-ip.ts

  --dry-run  print the input of iptables-restore for a node without rules of this program; neither read nor change rules
  --cleanup  read no input, remove every rule and chain of this program
  --help     print this

Exit code: 0 success; 1 the kernel or a tool failed; 2 the input or an option is invalid, the rules are unchanged.
`;

/** Makes the kernel agree with `wanted` in one transaction, and prints one line about it. */
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

/** Prints the transaction for an empty nat table. Does not access the kernel, so it needs no privilege. */
function print(family: Family, wanted: Wanted): void {
  const transaction = renderTransaction(emptyNatTable, renderRules(family, wanted[family]));
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
    throw new InputError("--cleanup has no dry run, because it removes what is in the kernel");
  const wanted = values.cleanup === true ? noAddresses : readWanted(readFileSync(0, "utf8"));
  for (const note of wanted.notes) complain(note);
  // A failure of one family must not prevent the rules of the other.
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
  complain(isOption ? `${error.message} (see --help)` : `invalid input, rules unchanged: ${error.message}`);
  process.exitCode = 2;
}
