// Menus: a list of things to do that stands over the page, beside the button that opened it, until one is chosen, Escape
// is pressed or it is left. The browser's own popover does the closing.

import { el } from "../../views/dom.js";

/**
 * @typedef {Object} Item
 * @property {string} [id]
 * @property {string} label
 * @property {string} [title]
 * @property {string} [of] what it is done to, for those who hear the label alone
 * @property {boolean} [disabled]
 * @property {string} [href] of a file to download, in place of `chosen`
 * @property {() => unknown} [chosen]
 */

/** @param {HTMLElement} button @param {string} name @param {Item[]} items Opens a menu below the button. */
export function openMenu(button, name, items) {
  const list = el("div", { class: "menu-items", popover: "auto", role: "menu", "aria-label": name });
  const choices = items.map(({ id, label, title, of, disabled, href, chosen }) => {
    const shared = { id, role: "menuitem", tabindex: -1, title, "aria-label": of ? `${label} ${of}` : null };
    const choose = () => {
      list.hidePopover();
      chosen?.();
    };
    if (href) return el("a", { ...shared, href, download: true, onclick: choose }, label);
    return el("button", { ...shared, type: "button", disabled, onclick: choose }, label);
  });
  list.append(...choices);
  button.after(list);
  list.addEventListener("keydown", (event) => {
    const free = choices.filter((choice) => !choice.hasAttribute("disabled"));
    const at = free.findIndex((choice) => choice === document.activeElement), last = free.length - 1;
    const to = { ArrowDown: at < last ? at + 1 : 0, ArrowUp: at > 0 ? at - 1 : last, Home: 0, End: last }[event.key];
    if (event.key === "Tab") list.hidePopover();
    if (to === undefined) return;
    event.preventDefault();
    free[to].focus();
  });
  list.addEventListener("toggle", (event) => {
    const isOpen = /** @type {ToggleEvent} */ (event).newState === "open";
    button.setAttribute("aria-expanded", String(isOpen));
    if (!isOpen) list.remove();
  });
  list.showPopover();
  const { left, right, bottom, top } = button.getBoundingClientRect(), { offsetWidth, offsetHeight } = list;
  const fits = bottom + offsetHeight < innerHeight || top < offsetHeight;
  list.style.top = `${fits ? bottom + 2 : top - offsetHeight - 2}px`;
  list.style.left = `${Math.max(4, left + offsetWidth < innerWidth ? left : right - offsetWidth)}px`;
  choices.find((choice) => !choice.hasAttribute("disabled"))?.focus();
}

/** @param {string} label @param {Item[] | (() => Item[])} items A button with a menu. @param {string} [id] */
export function menu(label, items, id) {
  /** @type {HTMLButtonElement} */
  const button = el("button", {
    type: "button",
    id,
    class: "menu",
    "aria-haspopup": "menu",
    "aria-expanded": "false",
    onclick: () => openMenu(button, label, Array.isArray(items) ? items : items()),
  }, label);
  return button;
}
