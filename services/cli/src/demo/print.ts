/** Prints the demo's output, one line per call. */
export interface Print {
  /** The heading of the next step, with its number. */
  step(name: string, text: string): void;
  /** A detail of the step. */
  detail(text: string): void;
  /** A measurement or an outcome, highlighted. */
  result(text: string): void;
  /** A line outside the steps. */
  line(text: string): void;
}

/** Returns a printer for standard output: coloured on a terminal, unless NO_COLOR is set. */
export function printToStdout(): Print {
  const isColoured = process.stdout.isTTY === true && process.env.NO_COLOR === undefined;
  const write = (text: string): boolean => process.stdout.write(text);
  const paint = (code: number, text: string) => (isColoured ? `\u001b[${code}m${text}\u001b[0m` : text);
  const indent = " ".repeat(14);
  let count = 0;
  return {
    step: (name, text) => {
      count += 1;
      write(`${paint(2, String(count).padStart(2))}  ${paint(1, name.padEnd(10))}${text}\n`);
    },
    detail: (text) => void write(`${indent}${paint(2, text)}\n`),
    result: (text) => void write(`${indent}${paint(32, text)}\n`),
    line: (text) => void write(`${text}\n`),
  };
}
