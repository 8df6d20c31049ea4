// @ts-nocheck: drawing; what is computed is checked in scale.js, data.js, keys.js and overlay.js
// Charts in a notebook's output or a file of its own, from the JSON beside them (figures/lines.py).

import { mount } from "./curves.js";

const HEIGHT = 180;

// `text` is the JSON of {panels, name, key}: with a key, what is zoomed to outlives the output, which a run that is watched
// replaces.
export function charts(root, text) {
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
  if (globalThis.workbenchPrints) return;
  globalThis.workbenchPrints = true; // a listener for the whole page: one for each output would outlive the output
  addEventListener(
    "beforeprint",
    () => document.querySelectorAll(".wc").forEach((node) => node.dispatchEvent(new Event("print"))),
  );
}

function read(name) {
  try {
    return JSON.parse((name && sessionStorage.getItem(name)) || "null");
  } catch {
    return null; // no storage
  }
}

function keep(name, range) {
  try {
    if (name) sessionStorage.setItem(name, JSON.stringify(range));
  } catch { /* lasts as long as the output */ }
}
