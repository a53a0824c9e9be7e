import { type Place, relay } from "./relay.ts";

// `node relay-main.ts FROM TO [FROM TO]…` relays until it is killed. A number is a port, other texts are paths.
const places = process.argv.slice(2).map((text): Place => (/^\d+$/.test(text) ? Number(text) : text));
for (let index = 0; index + 1 < places.length; index += 2) relay(places[index] ?? 0, places[index + 1] ?? 0);
