import type { KillOptions } from "../kill-points.ts";

/** Kills of kpng-ipvs. KPNG_KILL_POINTS=100 sets another number, KPNG_KILL_SEED repeats a failed run. */
export const killOptions: KillOptions = {
  points: Number(process.env.KPNG_KILL_POINTS ?? 3),
  seed: Number(process.env.KPNG_KILL_SEED ?? Math.floor(Math.random() * 2 ** 31)),
  serviceCount: 20,
  stateCount: 2,
};

/** Names of the checks of `endurance-main.ts`. They depend on the environment, which the guest has, too. */
export const enduranceChecks = {
  kills: `killed ${killOptions.points} times, seed ${killOptions.seed}: once it runs again, the kernel has what an undisturbed run leaves`,
} as const;
