// Charts in a notebook's output or a file of its own, from the JSON beside them (figures/lines.py).

/** @import { ChartsPayload } from "./payload.js" */
/** @import { Range } from "./scale.js" */

import { mount } from "./curves.js";

const HEIGHT = 180;

/**
 * Draws charts from JSON: with a key, what is zoomed to outlives the output, which a run that is watched replaces.
 * @param {HTMLElement} root @param {string} text
 */
export function charts(root, text) {
  /** @type {ChartsPayload} */
  const payload = JSON.parse(text);
  const stored = payload.key ? `workbench-zoom-${payload.key}` : "";
  root.replaceChildren(); // the words for whoever runs no scripts
  const curves = mount(root, {
    height: HEIGHT,
    name: payload.name,
    range: read(stored),
    onZoom: (range) => keep(stored, range),
  });
  curves.show(payload.panels);
  root.addEventListener("print", () => curves.drawAll());
  const page = /** @type {typeof globalThis & { workbenchPrints?: boolean }} */ (globalThis);
  if (page.workbenchPrints) return;
  page.workbenchPrints = true; // a listener for the whole page: one for each output would outlive the output
  addEventListener(
    "beforeprint",
    () => document.querySelectorAll(".wc").forEach((node) => node.dispatchEvent(new Event("print"))),
  );
}

/** @param {string} name @returns {Range | null} */
function read(name) {
  try {
    return JSON.parse((name && sessionStorage.getItem(name)) || "null");
  } catch {
    return null; // no storage
  }
}

/** @param {string} name @param {Range | null} range */
function keep(name, range) {
  try {
    if (name) sessionStorage.setItem(name, JSON.stringify(range));
  } catch { /* lasts as long as the output */ }
}
