import { once } from "node:events";
import { relay } from "./relay.ts";

// `node relay-main.ts FROM TO [FROM TO]…` relays from each first place to the second, and prints a line when it listens.

const places = process.argv.slice(2);
for (let at = 0; at + 1 < places.length; at += 2) {
  await once(relay(places[at] ?? 0, places[at + 1] ?? 0), "listening");
}
process.stdout.write("ready\n");
