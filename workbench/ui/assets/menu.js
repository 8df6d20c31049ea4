// A button that unfolds a list of things to do; it folds up when something is chosen, at Escape, and when left.

import { el } from "../../views/dom.js";

/** @typedef {{ id: string, label: string, title?: string, chosen: () => unknown }} Item */

/** @param {string} label @param {Item[]} items */
export function menu(label, items) {
  const list = el("div", { class: "items", role: "group", "aria-label": label });
  const summary = el("summary", {}, label);
  const details = el("details", { class: "menu" }, summary, list);
  const fold = () => {
    details.open = false;
  };
  for (const { id, label, title, chosen } of items) {
    const choose = () => {
      fold();
      summary.focus();
      chosen();
    };
    list.append(el("button", { type: "button", id, title: title ?? null, onclick: choose }, label));
  }
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    event.stopPropagation();
    fold();
    summary.focus();
  });
  details.addEventListener("focusout", ({ relatedTarget }) => {
    if (!(relatedTarget instanceof Node && details.contains(relatedTarget))) fold();
  });
  return details;
}
