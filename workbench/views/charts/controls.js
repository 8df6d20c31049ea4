// What stands around charts: smoothing and zoom above them, a menu at each, a fold for what is looked at less.

/** @import { Range } from "./scale.js" */
/** @typedef {ReturnType<typeof bar>} Bar */
/** @typedef {ReturnType<typeof menu>} Menu */

import { el } from "../dom.js";

const SMOOTHING = "workbench-smoothing"; // of the browser's tab

function storedSmoothing() {
  try {
    return Number(sessionStorage.getItem(SMOOTHING)) || 0;
  } catch {
    return null; // no storage: the choice lasts until reload
  }
}

/**
 * Above the charts: how much is smoothed, and what is zoomed to while that is not everything.
 * @param {{ onSmooth: (weight: number) => void, onShowAll: () => void }} on
 */
export function bar({ onSmooth, onShowAll }) {
  const output = el("output");
  const slider = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing" });
  const about =
    "Exponential moving average with this weight on what came before. The logged values stay faint behind it.";
  const label = el("label", { class: "smoothing", title: about }, "smoothing ", slider, output);
  const all = el("button", {
    type: "button",
    class: "show-all",
    hidden: true,
    title: "Or double click a chart",
    onclick: onShowAll,
  });
  const say = () => {
    output.textContent = Number(slider.value) ? Number(slider.value).toFixed(2) : "off";
  };
  slider.addEventListener("input", () => {
    say();
    try {
      sessionStorage.setItem(SMOOTHING, slider.value);
    } catch { /* as above */ }
    onSmooth(Number(slider.value));
  });
  slider.value = `${storedSmoothing() ?? 0}`;
  say();
  return {
    node: el("div", { class: "curves-bar", hidden: true }, label, all),
    get smoothing() {
      return label.hidden ? 0 : Number(slider.value);
    },
    /** @param {Range | null} range @param {string} [name] what the x axis counts; only training steps are smoothed */
    zoomed(range, name) {
      label.hidden = name !== "step";
      all.hidden = !range;
      const ends = (range ?? []).map((end, i) => {
        if (name !== "step") return Number(end.toPrecision(3));
        return i ? Math.floor(end) : Math.ceil(end);
      });
      if (range) all.textContent = `${name === "step" ? "steps" : name} ${ends.join("\u2013")} · show all`;
    },
    /** Other charts of this tab may have been smoothed since. */
    refresh() {
      const stored = storedSmoothing() ?? Number(slider.value);
      if (stored === Number(slider.value)) return;
      slider.value = `${stored}`;
      say();
      onSmooth(stored);
    },
  };
}

/**
 * A figure's menu: a logarithmic axis where all values are above 0, and the figure as a file.
 * @param {string} title @param {{ onLog: (on: boolean) => void, png: () => unknown, csv: () => unknown }} on
 */
export function menu(title, { onLog, png, csv }) {
  /** @type {HTMLInputElement} */
  const box = el("input", { type: "checkbox", onchange: () => onLog(box.checked) });
  const log = el("label", {}, box, " log scale");
  const message = el("span", { class: "said", role: "status" });
  const save = (/** @type {() => unknown} */ make) => async () => {
    try {
      await make();
      node.open = false;
    } catch (error) {
      message.textContent = `No file was made: ${error instanceof Error ? error.message : error}`;
    }
  };
  const name = `Options of ${title}`;
  const node = el(
    "details",
    { class: "figure-menu", title: "" },
    el("summary", { "aria-label": name }, "\u22ef"),
    el(
      "div",
      { role: "group", "aria-label": name },
      log,
      el("button", { type: "button", onclick: save(png) }, "PNG"),
      el("button", { type: "button", onclick: save(csv) }, "CSV"),
      message,
    ),
  );
  return {
    node,
    /** @param {boolean} is whether all values are above 0 */
    positive(is) {
      if (box.disabled === !is) return;
      box.disabled = !is;
      log.classList.toggle("off", !is);
      log.title = is ? "" : "A logarithmic axis needs values above 0.";
    },
  };
}

/** @type {() => NodeListOf<HTMLDetailsElement>} */
const openMenus = () => document.querySelectorAll(".figure-menu[open]");
document.addEventListener("click", (event) => {
  for (const open of openMenus()) if (!open.contains(/** @type {Node} */ (event.target))) open.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of openMenus()) {
    if (open.contains(document.activeElement)) open.querySelector("summary")?.focus();
    open.open = false;
  }
});

/** Where what is looked at less is folded away: the fold, and the grid inside it. */
export function fold() {
  const grid = el("div", { class: "curves" });
  return { grid, node: el("details", { class: "more-curves", hidden: true }, el("summary", {}, "More curves"), grid) };
}
