import { type Table, tables } from "../render/rule.ts";
import { BackendIptablesError, type RunTool, type Tools } from "./tools.ts";

/**
 * Returns the output of iptables-save for all tables in use.
 *
 * It does not pass `-t`, with which iptables-legacy would load the kernel module of the table; a loaded module costs
 * time for each packet.
 *
 * Errors: SAVE_FAILED; TABLE_INCOMPATIBLE if iptables-nft cannot print a table that we use; the errors of `run`.
 */
export async function readRules(tools: Tools, run: RunTool): Promise<string> {
  let saved = "";
  await scanRules(tools, run, (text) => {
    saved += text;
  });
  return saved;
}

/** Like {@link readRules}, but passes the output to `take` as it arrives, in pieces that may end anywhere. */
export async function scanRules(tools: Tools, run: RunTool, take: (text: string) => void): Promise<void> {
  const finder = makeTableFinder();
  const onOutput = (text: string): void => {
    finder.take(text);
    take(text);
  };
  const { exitCode, stdout, stderr } = await run([tools.save], { onOutput });
  if (exitCode !== 0) {
    throw new BackendIptablesError("SAVE_FAILED", `${tools.save} failed (exit status ${exitCode}): ${stderr.trim()}`);
  }
  if (stdout !== "") onOutput(stdout);
  const [table] = finder.tables;
  if (table === undefined) return;
  const nftTable = `${tools.family === "v4" ? "ip" : "ip6"} ${table}`;
  throw new BackendIptablesError(
    "TABLE_INCOMPATIBLE",
    `${tools.save} cannot print table ${table}: a program added rules with nft. Move them to a table of their own ("nft -a list table ${nftTable}" shows them, "nft delete rule ${nftTable} CHAIN handle N" deletes one)`,
  );
}

/**
 * Notice that iptables-nft-save prints instead of the rules of a table, with exit status 0, if the program `nft` has
 * added a rule to the table that iptables cannot express. Without this check, the table would look empty.
 *
 * *Source:* iptables 1.8.9, `nft-save`: "Table `%s' is incompatible, use 'nft' tool."
 */
const notice = /^# Table `(\w+)' is incompatible/gm;

/**
 * Number of characters kept from one piece of output to the next. It is longer than a notice, because a piece may end
 * anywhere in a notice.
 */
const maxNoticeLength = 100;

/** Tables that we use and whose rules are missing from the output of iptables-save. */
interface IncompatibleTables {
  take(text: string): void;
  readonly tables: ReadonlySet<Table>;
}

/** Returns a finder that has found nothing yet. */
function makeTableFinder(): IncompatibleTables {
  const incompatible = new Set<Table>();
  let partialLine = "";
  return {
    tables: incompatible,
    take: (text) => {
      const all = partialLine + text;
      for (const [, name] of all.matchAll(notice))
        for (const table of tables) if (table === name) incompatible.add(table);
      partialLine = all.slice(Math.max(all.length - maxNoticeLength, all.lastIndexOf("\n") + 1));
    },
  };
}
