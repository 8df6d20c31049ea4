// What somebody set the page's fields to: kept at once, and sent with every event. An event names no field: Gradio looks
// through the whole page for each that it names, then and at all later events.

/** @import { Handles } from "./payloads.js" */
/** @typedef {[turn: number, replaced: number, value: unknown]} Change */

import { follow } from "./widget.js";

/** @type {Map<string, Change>} */
const changes = new Map();
const FRAMES = 3, LONGEST_FRAME = 100; // milliseconds
let turns = 0;
let told = 0;

/** @param {Handles} handles Notes the number of what the page was told last to set in fields. */
export function replaced(handles) {
  follow(handles, (_, /** @type {number | null} */ number) => told = Math.max(told, number ?? 0));
}

/** @param {string[]} paths @param {unknown[]} values Keeps what fields hold. */
export function changed(paths, values) {
  paths.forEach((path, i) => {
    const [, before, value] = changes.get(path) ?? [];
    if (before === told && JSON.stringify(value) === JSON.stringify(values[i])) return;
    changes.set(path, [++turns, told, values[i]]);
  });
}

/** All changes, which carry numbers: Gradio sends two events of one moment side by side, and one may overtake the other. */
export const allChanges = () => JSON.stringify({ replaced: told, changes: Object.fromEntries(changes) });

/** The same for a button: Gradio tells of what was typed just before it was pressed a frame or two later. */
export async function changesAtPress() {
  for (let frame = 0; frame < FRAMES; frame++) await new Promise(afterFrame);
  return allChanges();
}

/** @param {(value: unknown) => void} next Called after a frame; on a page that is not shown there is none. */
function afterFrame(next) {
  requestAnimationFrame(() => setTimeout(next));
  setTimeout(next, LONGEST_FRAME);
}
