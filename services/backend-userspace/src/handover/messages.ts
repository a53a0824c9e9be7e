/** The frontend that a process serves at each of its places. *Shape:* `["TCP 192.0.2.1 20173", "TCP 10.96.0.1 80"]`. */
export type HeldPlaces = readonly (readonly [place: string, frontend: string])[];

/** Message from the keeper of the listeners to a process that serves; see {@link ServerMessage} for the order. */
export type KeeperMessage =
  | { readonly kind: "hold" | "continue" | "succeeded" | "stop" }
  | { readonly kind: "places"; readonly places: HeldPlaces };

/**
 * Message from a process that serves to the keeper. `Handover` sends these messages, and `keepListeners` receives them
 * and sends {@link KeeperMessage}. A file of its own, because the two run in different processes. The order of a
 * handover:
 *
 * 1. keeper → old: `hold`. The old process opens no more listeners, and answers with its `places`.
 * 2. The keeper starts the new process, which says `begun` and is sent the `places` of the old one.
 * 3. new → keeper: `serving`, after its first sync. Both processes accept connections now.
 * 4. keeper → old: `succeeded`. The old process accepts no more, waits for its connections, and ends.
 *
 * If the new process ends before step 3, the keeper tells the old one to `continue`.
 */
export type ServerMessage =
  | { readonly kind: "begun" | "serving" }
  | { readonly kind: "places"; readonly places: HeldPlaces };
