import type { Transport } from "@connectrpc/connect";
import { showProgress } from "../print/progress.ts";

/**
 * Returns a transport that shows on a terminal what a command waits for, if an answer of `server` takes longer than a
 * second: a response, or the first message of a stream. `makeInspect` wraps the connections of all queries in it.
 * Separate from `showProgress`, which prints and knows nothing about requests.
 */
export function progressTransport(transport: Transport, server: string): Transport {
  const show = (method: string): (() => void) => showProgress(() => `waiting for ${server} (${method})`);
  return {
    unary: async (method, ...rest) => {
      const hide = show(method.name);
      return await transport.unary(method, ...rest).finally(hide);
    },
    stream: async (method, ...rest) => {
      const hide = show(method.name);
      try {
        const response = await transport.stream(method, ...rest);
        return { ...response, message: untilFirst(response.message, hide) };
      } catch (error) {
        hide();
        throw error;
      }
    },
  };
}

async function* untilFirst<T>(messages: AsyncIterable<T>, onFirst: () => void): AsyncIterable<T> {
  try {
    for await (const message of messages) {
      onFirst();
      yield message;
    }
  } finally {
    onFirst();
  }
}
