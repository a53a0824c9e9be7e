/** Writes the story; one line a call. */
export interface Print {
  /** A new step of the story, numbered. */
  step(name: string, text: string): void;
  /** More about the step. */
  detail(text: string): void;
  /** What was found out, worth the reader's eye. */
  result(text: string): void;
  /** Something else than the story. */
  line(text: string): void;
}

/** Colours only where a person looks, and not against NO_COLOR. */
export function createPrint(write: (text: string) => void, isColoured: boolean): Print {
  const paint = (code: number, text: string) => (isColoured ? `\u001b[${code}m${text}\u001b[0m` : text);
  const indent = " ".repeat(14);
  let count = 0;
  return {
    step: (name, text) => {
      count += 1;
      write(`${paint(2, String(count).padStart(2))}  ${paint(1, name.padEnd(10))}${text}\n`);
    },
    detail: (text) => write(`${indent}${paint(2, text)}\n`),
    result: (text) => write(`${indent}${paint(32, text)}\n`),
    line: (text) => write(`${text}\n`),
  };
}
