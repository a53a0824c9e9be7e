import { once } from "node:events";
import { connect } from "node:net";
import { ProcessError } from "@kpng/process/process-error.ts";
import { Command } from "commander";
import { withPlainErrors } from "../inspect/client.ts";

/**
 * `kpng connect`, which help does not list: connects standard input and output to the inspect socket of this pod's
 * backend, whose path is in the environment variable of `--inspect-socket`. `kpng get rules --node` runs this command
 * in the pod.
 */
export function makeConnect(signal: AbortSignal): Command {
  return new Command("connect").action(() =>
    withPlainErrors(async () => {
      const path = process.env.KPNG_INSPECT_SOCKET;
      if (path === undefined) throw new ProcessError("BAD_OPTION", "KPNG_INSPECT_SOCKET names no socket of a backend");
      const backend = connect(path);
      signal.addEventListener("abort", () => backend.destroy());
      process.stdin.pipe(backend).pipe(process.stdout);
      await once(backend, "close").catch((cause: unknown) => {
        throw new ProcessError("REQUEST_FAILED", `cannot connect to ${path}`, { cause });
      });
    }),
  );
}
