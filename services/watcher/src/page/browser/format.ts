/**
 * Formats a duration in milliseconds. Separate, because most sections of the status page call the functions of this
 * file. *Shape:* `0 s`, `240 µs`, `31.4 ms`, `1.2 s`, `4 m 10 s`, `3 h 2 m`.
 */
export function formatMs(ms: number): string {
  if (ms === 0) return "0 s";
  if (ms < 1) return `${Math.round(ms * 1_000)} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} m`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

/** Formats a number of bytes. *Shape:* `0 B`, `1.5 kB`, `12.0 MB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let [value, unit] = [bytes, 0];
  for (; value >= 1_000 && unit < units.length - 1; unit += 1) value /= 1_000;
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** Formats a time of day with milliseconds. *Shape:* `12:03:44.120`, in the time zone of the browser. */
export function formatTime(ms: number): string {
  const date = new Date(ms);
  const two = (value: number): string => String(value).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
