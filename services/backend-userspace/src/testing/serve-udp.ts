import { once } from "node:events";
import { RunningService } from "./running-service.ts";

// Serves a UDP Service with one endpoint, whose port is the argument, until standard input ends; then prints why flows
// ended. The test of `UdpListener` runs it as a process of its own, so that it can limit its descriptors.

const endpoint = { address: "127.0.0.1", port: Number(process.argv[2]) };
const service = await RunningService.open({ protocol: "UDP", endpoints: [endpoint] });
process.stdout.write(`${service.port}\n`);
await once(process.stdin.resume(), "end");
process.stdout.write(`${JSON.stringify(service.ends())}\n`);
await service.ruleSet.close();
