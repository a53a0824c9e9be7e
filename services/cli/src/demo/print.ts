import { styleText } from "node:util";

/** Prints the demo's output, one line per call, coloured on a terminal. */
export class Print {
  #count = 0;

  /** The heading of the next step, with its number. */
  step(name: string, text: string): void {
    this.#count += 1;
    this.line(`${styleText("dim", String(this.#count).padStart(2))}  ${styleText("bold", name.padEnd(10))}${text}`);
  }

  /** A detail of the step. */
  detail(text: string): void {
    this.line(" ".repeat(14) + styleText("dim", text));
  }

  /** A measurement or an outcome, highlighted. */
  result(text: string): void {
    this.line(" ".repeat(14) + styleText("green", text));
  }

  /** A line outside the steps. */
  line(text: string): void {
    process.stdout.write(`${text}\n`);
  }
}
