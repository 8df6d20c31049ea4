// The line that filters, searches and orders the cards of a group.

/** @import { Prepared } from "./payload.js" */
/** @import { Wish } from "./finding.js" */

import { el, say, setText } from "../dom.js";
import { filtersOf, ORDERS } from "./finding.js";

const SEARCH_TITLE = "Answers and observations that contain a text, in whatever case (/)";

export class Finder {
  /** @param {{ onFind: () => void, onOrder: (order: string) => void }} on what is called when somebody chooses */
  constructor({ onFind, onOrder }) {
    this.onFind = onFind;
    this.filter = "";
    this.filters = el("span", { class: "filters", role: "group", "aria-label": "Filter" });
    this.search = el("input", {
      type: "search",
      class: "search",
      placeholder: "Search  /",
      "aria-label": "Search the answers",
      title: SEARCH_TITLE,
      oninput: onFind,
    });
    const orders = ORDERS.map(([value, label]) => el("option", { value }, label));
    this.onOrder = onOrder;
    const order = el("select", { "aria-label": "Order", class: "order-by" }, ...orders);
    order.addEventListener("change", () => onOrder(order.value));
    this.order = order;
    this.said = el("span", { class: "said", role: "status", hidden: true });
    const showAll = { type: "button", class: "link", onclick: () => this.clear() };
    this.missed = el("span");
    this.nothing = el(
      "p",
      { class: "nothing", role: "status", hidden: true },
      this.missed,
      el("button", showAll, "Show all"),
    );
    this.node = el(
      "div",
      { class: "finder", role: "search", "aria-label": "Rollouts", hidden: true },
      this.filters,
      el("label", { class: "order" }, order),
      this.search,
      this.said,
    );
  }

  /** @returns {Wish} What is looked for. */
  get wish() {
    return this.node.hidden ? { filter: "", text: "" } : { filter: this.filter, text: this.search.value.trim() };
  }

  /** @param {Prepared} data Offers what would leave some of its rollouts, with how many. */
  offer(data) {
    this.node.hidden = data.rollouts.length < 2 || Boolean(data.measures);
    const offered = filtersOf(data).filter(({ key, count }) => count > 0 || key === this.filter);
    const hadFocus = /** @type {HTMLElement | null} */ (this.filters.querySelector(":focus"))?.dataset.filter;
    const all = { key: "", label: "all", title: "Every rollout", count: data.rollouts.length };
    this.filters.hidden = !offered.length;
    this.filters.replaceChildren(...[all, ...offered].map(({ key, label, title, count }) => {
      const pressed = String(key === this.filter);
      const attributes = { type: "button", "data-filter": key, "aria-pressed": pressed, title };
      return el("button", { ...attributes, onclick: () => this.choose(key) }, label, " ", el("b", {}, count));
    }));
    if (hadFocus !== undefined) this.button(hadFocus)?.focus({ preventScroll: true });
  }

  /** @param {string} key @returns {HTMLElement | null} */
  button(key) {
    const buttons = /** @type {NodeListOf<HTMLElement>} */ (this.filters.querySelectorAll("[data-filter]"));
    return [...buttons].find((button) => button.dataset.filter === key) ?? null;
  }

  /** @param {string} key Shows what a filter leaves; choosing it again shows all. */
  choose(key) {
    this.filter = key === this.filter ? "" : key;
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (this.filters.querySelectorAll("button"))) {
      button.setAttribute("aria-pressed", String(button.dataset.filter === this.filter));
    }
    this.onFind();
  }

  /** @param {{ filter: string, text: string, order: string }} asked Chooses what a link asks for, as far as it is offered. */
  restore({ filter, text, order }) {
    if (ORDERS.some(([value]) => value === order)) {
      this.order.value = order;
      this.onOrder(order);
    }
    this.search.value = text;
    if (filter && this.button(filter)) this.choose(filter);
    else if (text) this.onFind();
  }

  /** Shows every rollout. */
  clear() {
    this.search.value = "";
    this.choose("");
  }

  /** @param {string} text Why no card is shown; "" where one is. */
  sayNothing(text) {
    this.nothing.hidden = !text;
    setText(this.missed, text);
  }

  /** @param {number} shown @param {number} total rollouts */
  count(shown, total) {
    say(this.said, shown < total ? `${shown} of ${total} shown` : "");
  }
}

/** @param {KeyboardEvent} event @param {HTMLElement} root Whether a key asks for the search of the drawing in `root`. */
export function asksForSearch(event, root) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key !== "/" || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return false;
  if (target.isContentEditable || target.closest?.("input, textarea, select, .cm-editor")) return false;
  return root.contains(target) || (root.offsetParent !== null && !target.closest?.(".jp-Notebook"));
}
