// What there is to know about a group before its colours are read: why it has none, and warnings of its scheme.

/** @import { NoSpreadPayload } from "../payloads.d.ts" */
/** @import { Prepared } from "./payload.js" */

import { el } from "../dom.js";

/** @param {NoSpreadPayload} noSpread Why every advantage is 0 and what would change that, in words. */
export const noSpreadText = ({ reason, advice }) => `${reason}.${advice ? ` To use it: ${advice}.` : ""}`;

/**
 * @param {Prepared} data
 * @param {((label: string) => void) | null} onRemedy called with the remedy that somebody chose; null where none can be
 */
export function noticesOf({ rollouts, noSpread, warnings }, onRemedy) {
  const lines = (warnings ?? []).map((warning) => el("p", { role: "status" }, warning));
  if (!noSpread || !rollouts.some((rollout) => rollout.steps)) return lines;
  const buttons = noSpread.remedies.map((label) =>
    el("button", { type: "button", class: "remedy", onclick: () => onRemedy?.(label) }, label)
  );
  const parts = onRemedy && buttons.length ? [`${noSpread.reason}. `, ...buttons] : [noSpreadText(noSpread)];
  return [el("p", { role: "status" }, ...parts), ...lines];
}
