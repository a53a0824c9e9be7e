import { deploymentPorts } from "@kpng/backend-kit/observe/default-ports.ts";
import { type BlockWriter, markdownTable } from "./fill-blocks.ts";

/** The ports for health and metrics that deployments give to each backend. */
export const portsTable: BlockWriter = () =>
  markdownTable(
    ["Backend", "Health", "Metrics"],
    Object.entries(deploymentPorts).map(([name, { healthz, metrics }]) => [name, `${healthz}`, `${metrics}`]),
  );
