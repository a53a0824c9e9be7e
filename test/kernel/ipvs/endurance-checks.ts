import type { KillOptions } from "../kill-points.ts";

/** Kills of kpng-ipvs. KPNG_KILL_POINTS=100 sets another number, KPNG_KILL_SEED repeats a failed run. */
export const killOptions: KillOptions = {
  points: Number(process.env.KPNG_KILL_POINTS ?? 3),
  seed: Number(process.env.KPNG_KILL_SEED ?? Math.floor(Math.random() * 2 ** 31)),
  serviceCount: 20,
  stateCount: 2,
};

/** Least number of short connections. KPNG_SHORT_CONNECTIONS=10000 sets another one. */
export const connectionCount = Number(process.env.KPNG_SHORT_CONNECTIONS ?? 1_000);

/** Whether kpng-ipvs is also killed during connections. A start takes up to 15 s in a guest. */
export const isLongRun = connectionCount >= 10_000;

/** Names of the checks of `endurance-main.ts`. They depend on the environment, which the guest has, too. */
export const enduranceChecks = {
  kills: `killed ${killOptions.points} times, seed ${killOptions.seed}: once it runs again, the kernel has what an undisturbed run leaves`,
  traffic: `transfers and ${connectionCount} short connections survive removed endpoints, ${isLongRun ? "a restart, a kill" : "a restart"} and a full resync`,
} as const;
