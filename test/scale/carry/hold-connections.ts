import { once } from "node:events";
import { keepOpen } from "./load.ts";

// Opens connections to a port of 127.0.0.1 from another address of it, prints a line when all of them have had an
// answer, and keeps them until standard input ends: `hold-connections.ts PORT COUNT SOURCE`.

const [port = 0, count = 0] = process.argv.slice(2).map(Number);
const close = await keepOpen(port, count, process.argv[4]);
process.stdout.write("open\n");
await once(process.stdin.resume(), "end");
close();
