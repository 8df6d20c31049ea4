// What somebody set the page's fields to: kept at once, and sent with every event. An event names no field: Gradio looks
// through the whole page for each that it names, then and at all later events.

/** @typedef {[turn: number, replaced: number, value: unknown]} Change */

/** @type {Map<string, Change>} */
const changes = new Map();
let turns = 0;

/**
 * Keeps what fields hold.
 * @param {string[]} paths @param {number} replaced the number of what the page was told to set last
 * @param {unknown[]} values
 */
export function changed(paths, replaced, values) {
  paths.forEach((path, i) => {
    const [, before, value] = changes.get(path) ?? [];
    if (before === replaced && JSON.stringify(value) === JSON.stringify(values[i])) return;
    changes.set(path, [++turns, replaced, values[i]]);
  });
}

/** All changes, which carry numbers: Gradio sends two events of one moment side by side, and one may overtake the other. */
export const allChanges = () => JSON.stringify(Object.fromEntries(changes));
