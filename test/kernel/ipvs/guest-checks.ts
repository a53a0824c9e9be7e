import { addressChecks, ownPortChecks } from "./checks/address-checks.ts";
import type { Checks } from "./checks/check.ts";
import { drainingChecks } from "./checks/draining-checks.ts";
import { felixChecks } from "./checks/felix-checks.ts";
import { repairChecks } from "./checks/repair-checks.ts";

/**
 * Checks beyond the scenarios, by name, in the order in which a guest runs them. Checks that leave closed connections
 * come last: endpoints with such connections go on draining, and other checks expect a sync without changes.
 */
export const guestChecks: Checks = {
  ...repairChecks,
  ...addressChecks,
  ...felixChecks,
  ...drainingChecks,
  ...ownPortChecks,
};

/** Names of all checks. */
export const guestCheckNames: readonly string[] = Object.keys(guestChecks);
