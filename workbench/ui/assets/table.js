// A compact table of texts: sorted by a click on a heading, walked with the arrow keys.

/** @import { Handles } from "./payloads.js" */
/** @typedef {{ title: string, numeric: boolean }} Heading */
/** @typedef {{ name: string, picks: boolean, headings: Heading[] }} TableSpec `picks`: a row can be chosen */
/** @typedef {{ column: number, down: boolean } | null} Order */

import { el } from "../../views/dom.js";
import { count } from "../../views/numbers.js";
import { follow, link } from "./widget.js";

/** @param {string} text The first number of a text, NaN where there is none. */
const numberIn = (text) => parseFloat(/-?\d[\d.]*/.exec(text)?.[0] ?? "");

/**
 * The places of rows in their order; texts without a number come last in a column of numbers, whichever way it is sorted.
 * @param {string[][]} rows @param {Heading[]} headings @param {Order} order
 */
export function orderOf(rows, headings, order) {
  const places = rows.map((_, i) => i);
  if (!order) return places;
  const { column, down } = order;
  return places.sort((i, j) => {
    const [a, b] = [rows[i][column], rows[j][column]];
    if (!headings[column].numeric) return (down ? -1 : 1) * a.localeCompare(b, undefined, { numeric: true });
    const [x, y] = [numberIn(a), numberIn(b)];
    if (isNaN(x) || isNaN(y)) return Number(isNaN(x)) - Number(isNaN(y));
    return down ? y - x : x - y;
  });
}

/** @param {Handles<any>} handles @param {TableSpec} spec */
export function table(handles, spec) {
  const drawn = new Table(spec, (row, name) => handles.trigger("apply", { row, name }));
  follow(handles, (root, /** @type {string[][] | null} */ rows) => {
    if (!drawn.node.isConnected) root.replaceChildren(drawn.node);
    drawn.draw(rows ?? []);
  });
  const choose = () => drawn.choose(Number(handles.props.chosen ?? -1));
  handles.watch("chosen", choose);
  choose();
}

/**
 * The presets that find steps in the group on screen, and behind a count the names of the others.
 * @param {Handles<any>} handles @param {string[]} headings
 */
export function presets(handles, headings) {
  const columns = headings.map((title) => ({ title, numeric: false }));
  const spec = { name: "Presets on these answers", picks: true, headings: columns };
  const table = new Table(spec, (row, name) => handles.trigger("apply", { row, name }));
  follow(handles, (root, /** @type {{ rows: string[][], others: string[] } | null} */ found) => {
    root.replaceChildren();
    if (!found) return;
    const { rows, others } = found;
    const said = rows.length ? " Click a row to use it." : " None finds a step.";
    const rest = el("summary", {}, `${count(others.length, "other")} without a match`);
    table.draw(rows);
    root.append(
      el("header", {}, el("b", {}, spec.name), said, link("Close", () => root.replaceChildren())),
      table.node,
      el("details", { hidden: !others.length }, rest, others.join(", ")),
    );
    root.scrollIntoView({ block: "nearest" }); // the button that asked may stand below it
  });
}

class Table {
  /** @param {TableSpec} spec @param {(row: number, name: string) => void} onPick `name` is its first text */
  constructor(spec, onPick) {
    this.spec = spec;
    this.onPick = onPick;
    /** @type {string[][]} */
    this.rows = [];
    /** @type {Order} */
    this.order = null;
    this.chosen = -1;
    this.heads = spec.headings.map(({ title, numeric }, column) =>
      el(
        "th",
        { scope: "col", class: numeric ? "number" : null },
        el("button", { type: "button", onclick: () => this.sort(column) }, title),
      )
    );
    this.body = el("tbody");
    const role = spec.picks ? "grid" : null;
    const whole = el(
      "table",
      { role, "aria-label": spec.name },
      el("thead", {}, el("tr", {}, ...this.heads)),
      this.body,
    );
    const scrolled = { class: "scroller", tabindex: spec.picks ? null : 0, role: "region", "aria-label": spec.name };
    this.scrolled = el("div", scrolled, whole);
    this.node = el("div", { class: "texts", hidden: true }, this.scrolled);
    if (!spec.picks) return;
    this.body.addEventListener("click", ({ target }) => this.pick(target));
    this.body.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** @param {string[][]} rows */
  draw(rows) {
    this.rows = rows;
    this.order = null;
    this.node.hidden = !rows.length;
    const { headings, picks } = this.spec;
    this.lines = rows.map((row, i) => {
      const cells = row.map((text, column) =>
        el("td", { class: headings[column].numeric ? "number" : null, title: text.length > 24 ? text : null }, text)
      );
      return el("tr", { "data-row": i, tabindex: picks ? -1 : null }, ...cells);
    });
    this.put();
    this.scrolled.scrollTo(0, 0);
  }

  /** The rows in their order, the chosen one marked. */
  put() {
    const { lines = [] } = this;
    this.heads.forEach((head, column) => {
      if (this.order?.column === column) head.setAttribute("aria-sort", this.order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...orderOf(this.rows, this.spec.headings, this.order).map((i) => lines[i]));
    this.choose(this.chosen);
  }

  /** @param {number} column Upwards, downwards, and as it came. */
  sort(column) {
    const { order } = this;
    if (order?.column !== column) this.order = { column, down: false };
    else this.order = order.down ? null : { column, down: true };
    this.put();
  }

  /** @param {number} row The one that is on screen; -1 for none. */
  choose(row) {
    this.chosen = row;
    if (!this.spec.picks) return;
    for (const line of this.lines ?? []) line.setAttribute("aria-selected", String(Number(line.dataset.row) === row));
    this.reach(this.lines?.[row] ?? /** @type {HTMLElement | null} */ (this.body.firstElementChild));
  }

  /** @param {HTMLElement | null | undefined} line The one that Tab reaches. */
  reach(line) {
    for (const other of this.body.querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
    line?.setAttribute("tabindex", "0");
  }

  /** @param {EventTarget | null} target */
  pick(target) {
    const line = /** @type {HTMLElement | null} */ (target instanceof Element ? target.closest("[data-row]") : null);
    if (!line) return;
    this.reach(line);
    const row = Number(line.dataset.row);
    this.onPick(row, this.rows[row][0]);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const line = event.target instanceof Element ? event.target.closest("tr") : null;
    if (!line || event.ctrlKey || event.metaKey || event.altKey) return;
    const { firstElementChild: first, lastElementChild: last } = this.body;
    const to = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling, Home: first, End: last }[
      event.key
    ];
    if (event.key === "Enter" || event.key === " ") this.pick(line);
    else if (to instanceof HTMLElement) {
      this.reach(to);
      to.focus();
    } else return;
    event.preventDefault();
  }
}
