import { type Place, relay } from "./relay.ts";

/** `node relay-main.ts FROM TO [FROM TO]…`: relays until it is ended. A place of digits is a port. */
const places = process.argv.slice(2).map((text): Place => (/^\d+$/.test(text) ? Number(text) : text));
for (let index = 0; index + 1 < places.length; index += 2) relay(places[index] ?? 0, places[index + 1] ?? 0);
