/** True for a text that may be the name of a scheduler of IPVS. *Shape:* `rr`, `lblcr`. */
export function isSchedulerName(text: string): boolean {
  return /^[a-z][a-z0-9]{1,14}$/.test(text);
}
