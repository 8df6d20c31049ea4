// A search among the settings of a run: those that are called, or are about, what is looked for.

/** @import { Handles } from "./payloads.js" */

import { el } from "../../views/dom.js";
import { rootOf } from "./widget.js";

/** @param {Handles} handles The search, above the fields. */
export function settings(handles) {
  const none = el("p", { class: "muted", role: "status", hidden: true }, "No setting is called that.");
  const search = el("input", { type: "search", placeholder: "Find a setting", "aria-label": "Find a setting" });
  /** @type {HTMLElement[]} the folds that the search has opened */
  let opened = [];
  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    const fields = [...document.querySelectorAll("#train-controls .drawn-fields > .form > .block")];
    const missed = fields.filter((field) => !said(field).includes(wanted));
    for (const field of fields) field.classList.toggle("missed", missed.includes(field));
    none.hidden = missed.length < fields.length;
  };
  const drawn = new MutationObserver(find); // of what was folded away the fields come later
  search.addEventListener("input", () => {
    if (search.value && !opened.length) opened = press("#train-controls .fold > button:not(.open)");
    if (!search.value) press("#train-controls .fold > button.open", opened.splice(0));
    const column = document.getElementById("train-controls");
    if (column) drawn.observe(column, { childList: true, subtree: true });
    find();
  });
  rootOf(handles).append(search, none);
}

/** @param {Element} field What it is called, by its label and in a file, and what it means. */
const said = (field) => `${field.id.replaceAll("-", "_")} ${field.id} ${field.textContent}`.toLowerCase();

/** @param {string} buttons @param {HTMLElement[]} [among] Presses them. */
function press(buttons, among) {
  const found = [...document.querySelectorAll(buttons)].filter((node) => node instanceof HTMLElement);
  const pressed = among ? found.filter((node) => among.includes(node)) : found;
  for (const node of pressed) node.click();
  return pressed;
}
