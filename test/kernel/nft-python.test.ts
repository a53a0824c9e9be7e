import { existsSync } from "node:fs";
import { programFile } from "../process/program-file.ts";
import { flushServices } from "./backend/kpng-proxy.ts";
import { describeProxy } from "./describe-proxy.ts";
import { isEverything, selectedCases } from "./selection.ts";

const python = "/usr/bin/python3";
const proxy = [python, "examples/nft-python/nft.py"];

// A proxy that decides nothing: the plan has kube-proxy's semantics.
describeProxy({
  name: "examples/nft-python",
  whyNot: existsSync(python) ? undefined : `no ${python}`,
  start: () => ({
    proxy: {
      command: [
        ...["env", `KPNG_PLAN=${process.execPath} ${programFile("backend-plan")}`],
        ...[...proxy, "--api", "{api}", "--node-name", "{node}", "{options}"],
      ],
      cleanup: [...proxy, "--cleanup"].join(" "),
      loseRules: flushServices("example"),
      exceptions: "examples/nft-python/packets.exceptions",
    },
  }),
  cases: isEverything ? undefined : selectedCases,
});
