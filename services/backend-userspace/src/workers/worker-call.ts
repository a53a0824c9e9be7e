/** Argument with which a program runs as a worker. It is no command: `Workers` alone starts a program so. */
export const workerArgument = "carry-for-parent";

/**
 * Whether this process was started as a worker. `main.ts` asks before anything else, and so does that of package cli:
 * each program starts itself again, because a bundled program is one file.
 */
export const isWorkerCall = (): boolean => process.argv[2] === workerArgument && process.connected;
