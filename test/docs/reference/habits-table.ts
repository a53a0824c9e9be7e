import { refusedHabits } from "@kpng/cli/commands/refused-habits.ts";
import { markdownTable } from "./fill-blocks.ts";

/**
 * Returns the table of `docs/reference/habits.md` with the habits that `kpng` refuses, from the table that the command
 * has. `renderReferences` calls it; each table of the references has such a file.
 */
export function habitsTable(): readonly string[] {
  return markdownTable(
    ["Habit", "Why not", "Here"],
    refusedHabits.map(({ tool, words, reason, instead }) => [
      `${tool} ${words.map((word) => `\`${word}\``).join(", ")}`,
      reason,
      instead,
    ]),
  );
}
