// What somebody set the page's fields to: kept at once, and sent with every event. An event names no field: Gradio looks
// through the whole page for each that it names, then and at all later events.

/** @import { Handles } from "./payloads.js" */
/** @typedef {[turn: number, replaced: number, value: unknown]} Change */

import { follow } from "./widget.js";

/** @type {Map<string, Change>} */
const changes = new Map();
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
